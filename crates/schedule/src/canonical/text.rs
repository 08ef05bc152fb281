//! One form for a text, however it was typed. Pure.

use unicode_normalization::UnicodeNormalization;

/// Folding settles in two rounds for all text that was tried; a third is for what was not.
const ROUNDS: usize = 3;

/// The canonical form: case, Unicode form, dashes, quotes, white space and invisible characters make no difference.
pub(crate) fn fold(text: &str) -> String {
    let mut folded = fold_once(text);
    for _ in 1..ROUNDS {
        let again = fold_once(&folded);
        if again == folded {
            break;
        }
        folded = again;
    }
    folded
}

fn fold_once(text: &str) -> String {
    // By way of upper case, so that ß and SS, ς and σ meet; character by character, because the lower case of a whole word
    // depends on its end.
    let plain: String = text
        .nfkc()
        .filter(|c| !invisible(*c))
        .map(plain_sign)
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .nfkc()
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Characters that nobody sees: controls that are no white space, joiners, marks of direction, the soft hyphen, the byte order mark.
fn invisible(c: char) -> bool {
    (c.is_control() && !c.is_whitespace())
        || matches!(
            c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'
                ..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{2066}'
                ..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        )
}

fn plain_sign(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}'
        | '\u{2043}'
        | '\u{2212}'
        | '\u{2e3a}'
        | '\u{2e3b}'
        | '\u{fe58}'
        | '\u{fe63}'
        | '\u{ff0d}' => '-',
        '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{00b4}' | '`' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' | '\u{00ab}' | '\u{00bb}' => '"',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_word_in_many_clothes() {
        for text in ["Straße 3 – Süd", "STRASSE 3 - SU\u{308}D", " stra\u{ad}ße\u{a0}３\t—  süd "]
        {
            assert_eq!(fold(text), "strasse 3 - süd", "{text:?}");
        }
        assert_eq!(fold("ΟΔΟΣ"), fold("οδος"));
        assert_eq!(fold("ﬁre “Nº 1”"), "fire \"no 1\"");
        assert_eq!(fold("İstanbul"), fold("i\u{307}stanbul"));
        assert_eq!(fold("\u{200b}\u{feff}"), "");
    }

    proptest! {
        #[test]
        fn folding_is_idempotent(text in "\\PC{0,30}") {
            let folded = fold(&text);
            prop_assert_eq!(fold(&folded), folded);
        }

        #[test]
        fn case_and_form_make_no_difference(text in "[a-zäöüßéñçåøŁłİıΑ-Ωα-ωςЀ-џ0-9 .,&'-]{0,30}") {
            let folded = fold(&text);
            prop_assert_eq!(&fold(&text.to_lowercase()), &folded);
            prop_assert_eq!(&fold(&text.to_uppercase()), &folded);
            prop_assert_eq!(&fold(&text.nfd().collect::<String>()), &folded);
            prop_assert_eq!(&fold(&text.nfkd().collect::<String>()), &folded);
        }
    }
}
