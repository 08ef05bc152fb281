//! The words of each language. Templates have their places in braces; a test fills all of them.

use jiff::civil::{Date, Weekday};

/// A language that has templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// English, and what everybody gets whose language has no templates.
    #[default]
    English,
    /// German.
    German,
    /// Spanish.
    Spanish,
    /// French.
    French,
}

/// The texts of a language.
pub(super) struct Words {
    pub(super) first: &'static str,
    pub(super) free: &'static str,
    pub(super) many: &'static str,
    pub(super) more: &'static str,
    pub(super) added: &'static str,
    pub(super) removed: &'static str,
    pub(super) changed: &'static str,
    pub(super) moved: &'static str,
    pub(super) relocated: &'static str,
    pub(super) retitled: &'static str,
    pub(super) reclassified: &'static str,
    pub(super) shift: &'static str,
    pub(super) at: &'static str,
    pub(super) customer: &'static str,
    pub(super) nowhere: &'static str,
    pub(super) next_day: &'static str,
    weekdays: [&'static str; 7],
    months: [&'static str; 12],
    date: &'static str,
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 4] =
        [Language::English, Language::German, Language::Spanish, Language::French];

    /// The language of a tag such as `de` or `de-AT`; English for what has no templates.
    pub fn of_tag(tag: &str) -> Language {
        let primary = tag.split(['-', '_']).next().unwrap_or_default();
        match primary.trim().to_ascii_lowercase().as_str() {
            "de" => Language::German,
            "es" => Language::Spanish,
            "fr" => Language::French,
            _ => Language::English,
        }
    }

    pub(super) fn words(self) -> &'static Words {
        match self {
            Language::English => &ENGLISH,
            Language::German => &GERMAN,
            Language::Spanish => &SPANISH,
            Language::French => &FRENCH,
        }
    }

    /// The day as a person says it: `Monday 16 November`.
    pub(super) fn date(self, date: Date) -> String {
        let words = self.words();
        let weekday = match date.weekday() {
            Weekday::Monday => 0,
            Weekday::Tuesday => 1,
            Weekday::Wednesday => 2,
            Weekday::Thursday => 3,
            Weekday::Friday => 4,
            Weekday::Saturday => 5,
            Weekday::Sunday => 6,
        };
        let month = usize::try_from(date.month() - 1).unwrap_or_default() % 12;
        let day = date.day().to_string();
        super::fill(
            words.date,
            &[("weekday", words.weekdays[weekday]), ("day", &day), ("month", words.months[month])],
        )
    }
}

const ENGLISH: Words = Words {
    first: "Your schedule for {date}:",
    free: "You have no shifts on {date}.",
    many: "{count} of your shifts on {date} changed:",
    more: "… and {count} more",
    added: "New on {date}: {what}, {new}.",
    removed: "Cancelled on {date}: {what}, {old}.",
    changed: "{date}: {which} – {changes}.",
    moved: "moved from {old} to {new}",
    relocated: "is now at {place} instead of {old_place}",
    retitled: "is now called {new_title}",
    reclassified: "is now {new_kind} instead of {old_kind}",
    shift: "shift",
    at: "{what} at {place}",
    customer: "{place} ({customer})",
    nowhere: "no named place",
    next_day: "(next day)",
    weekdays: ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    months: [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ],
    date: "{weekday} {day} {month}",
};

const GERMAN: Words = Words {
    first: "Dein Dienstplan für {date}:",
    free: "Am {date} hast du keinen Dienst.",
    many: "{count} deiner Dienste am {date} haben sich geändert:",
    more: "… und {count} weitere",
    added: "Neu am {date}: {what}, {new}.",
    removed: "Entfällt am {date}: {what}, {old}.",
    changed: "{date}: {which} – {changes}.",
    moved: "von {old} auf {new} verlegt",
    relocated: "jetzt: {place} statt {old_place}",
    retitled: "heißt jetzt {new_title}",
    reclassified: "jetzt {new_kind} statt {old_kind}",
    shift: "Dienst",
    at: "{what}, {place}",
    customer: "{place} ({customer})",
    nowhere: "ohne Ort",
    next_day: "(Folgetag)",
    weekdays: ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"],
    months: [
        "Januar",
        "Februar",
        "März",
        "April",
        "Mai",
        "Juni",
        "Juli",
        "August",
        "September",
        "Oktober",
        "November",
        "Dezember",
    ],
    date: "{weekday}, {day}. {month}",
};

const SPANISH: Words = Words {
    first: "Tu horario del {date}:",
    free: "No tienes turnos el {date}.",
    many: "Han cambiado {count} de tus turnos del {date}:",
    more: "… y {count} más",
    added: "Nuevo el {date}: {what}, {new}.",
    removed: "Cancelado el {date}: {what}, {old}.",
    changed: "{date}: {which} – {changes}.",
    moved: "pasa de {old} a {new}",
    relocated: "ahora en {place} en vez de {old_place}",
    retitled: "ahora se llama {new_title}",
    reclassified: "ahora {new_kind} en vez de {old_kind}",
    shift: "turno",
    at: "{what} en {place}",
    customer: "{place} ({customer})",
    nowhere: "sin lugar",
    next_day: "(día siguiente)",
    weekdays: ["lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"],
    months: [
        "enero",
        "febrero",
        "marzo",
        "abril",
        "mayo",
        "junio",
        "julio",
        "agosto",
        "septiembre",
        "octubre",
        "noviembre",
        "diciembre",
    ],
    date: "{weekday} {day} de {month}",
};

const FRENCH: Words = Words {
    first: "Votre planning du {date} :",
    free: "Vous ne travaillez pas le {date}.",
    many: "{count} de vos services du {date} ont changé :",
    more: "… et {count} de plus",
    added: "Nouveau le {date} : {what}, {new}.",
    removed: "Annulé le {date} : {what}, {old}.",
    changed: "{date} : {which} – {changes}.",
    moved: "passe de {old} à {new}",
    relocated: "désormais : {place} au lieu de {old_place}",
    retitled: "s’appelle désormais {new_title}",
    reclassified: "désormais {new_kind} au lieu de {old_kind}",
    shift: "service",
    at: "{what}, {place}",
    customer: "{place} ({customer})",
    nowhere: "sans lieu",
    next_day: "(lendemain)",
    weekdays: ["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"],
    months: [
        "janvier",
        "février",
        "mars",
        "avril",
        "mai",
        "juin",
        "juillet",
        "août",
        "septembre",
        "octobre",
        "novembre",
        "décembre",
    ],
    date: "{weekday} {day} {month}",
};
