//! What the edge asks of a node.

use std::fmt::Write as _;

use super::{VERSION, WireError, check_version};
use crate::id::Epoch;
use crate::ledger::MAX_SEQ;
use crate::{Invalid, json};

/// The most ranges in a command; the lowest ones, the rest follow when these are closed.
pub const MAX_COMMAND_RANGES: usize = 64;

/// The largest command. The largest that keeps the form is below a fifth of it.
pub const MAX_COMMAND_BYTES: usize = 16 * 1024;

/// Asks a node to send ranges again that it takes for acknowledged: an edge that was restored from a backup does
/// not have them any more.
///
/// Its form is checked when it is read: the ranges ascend and neither overlap nor touch. Whether it is obeyed
/// (its epoch, a sequence beyond the head) is the node's to decide. Obeying it twice is harmless, so it needs
/// no number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The life of the spool the sequences belong to.
    pub epoch: Epoch,
    /// What to send again, or to declare as lost where it is gone.
    pub resend: Vec<(u64, u64)>,
}

impl Command {
    /// Reads a command.
    pub fn parse(body: &[u8]) -> Result<Command, WireError> {
        if body.len() > MAX_COMMAND_BYTES {
            let limit = MAX_COMMAND_BYTES;
            return Err(WireError::TooLarge { what: "the command in bytes", limit });
        }
        let text = json::utf8("command", body)?;
        let [v, epoch, resend] = json::document("command", text, &["v", "epoch", "resend"])?;
        check_version(v)?;
        let epoch = json::id("epoch", epoch)?;
        const LIST: &str = "a list of ranges [from, to]";
        let raw = resend.ok_or_else(|| Invalid::missing("resend", LIST))?;
        let elements = json::elements("resend", raw, MAX_COMMAND_RANGES)?
            .ok_or(WireError::TooLarge { what: "resend", limit: MAX_COMMAND_RANGES })?;
        if elements.is_empty() {
            return Err(Invalid::json("resend", raw.get(), LIST).into());
        }
        let mut resend = Vec::with_capacity(elements.len());
        let mut lowest = 1;
        for (index, raw) in elements.into_iter().enumerate() {
            let field = format!("resend[{index}]");
            let pair = json::elements(&field, raw, 2)?;
            let Some(&[from, to]) = pair.as_deref() else {
                return Err(Invalid::json(field, raw.get(), "two sequences [from, to]").into());
            };
            let from = json::integer(&format!("{field}[0]"), Some(from), lowest, MAX_SEQ)?;
            let to = json::integer(&format!("{field}[1]"), Some(to), from, MAX_SEQ)?;
            resend.push((from, to));
            lowest = to.saturating_add(2);
        }
        Ok(Command { epoch, resend })
    }

    /// The highest sequence it speaks of.
    pub fn highest(&self) -> u64 {
        self.resend.last().map_or(0, |&(_, to)| to)
    }

    /// The command as JSON.
    pub fn to_json(&self) -> String {
        let mut json = format!("{{\"v\":{VERSION},\"epoch\":\"{}\",\"resend\":[", self.epoch);
        for (index, (from, to)) in self.resend.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to memory does not fail.
            let _ = write!(json, "{comma}[{from},{to}]");
        }
        json.push_str("]}");
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_round_trip() {
        let command = Command { epoch: Epoch::mint(), resend: vec![(1, 7), (9, 9), (20, 4_000)] };
        assert_eq!(Command::parse(command.to_json().as_bytes()), Ok(command.clone()));
        assert_eq!(command.highest(), 4_000);
    }

    #[test]
    fn anything_else_is_refused() {
        let epoch = Epoch::mint();
        let many: Vec<String> = (0..65).map(|n| format!("[{0},{0}]", 1 + 2 * n)).collect();
        let many = format!("[{}]", many.join(","));
        for resend in [
            "[]",
            "[[0,4]]",
            "[[5,4]]",
            "[[1,4],[5,6]]",
            "[[9,9],[1,2]]",
            "[[1]]",
            "[[1,2,3]]",
            "7",
            "null",
            "[[1,9223372036854775808]]",
            "[[-1,2]]",
            &many,
        ] {
            let body = format!("{{\"v\":1,\"epoch\":\"{epoch}\",\"resend\":{resend}}}");
            assert!(Command::parse(body.as_bytes()).is_err(), "{resend}");
        }
        for body in ["", "{}", "{\"v\":2}", "[1]"] {
            assert!(Command::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
