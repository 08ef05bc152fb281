//! One spelling for each word: an enum of words is written as `as_str` says and read back the same way, nothing else.

/// `Display` and `FromStr` for an enum that has `ALL`, `EXPECTED` and `as_str`. `$field` is what an error calls the value.
macro_rules! spelled {
    ($type:ident, $field:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::Invalid;

            fn from_str(text: &str) -> Result<$type, $crate::Invalid> {
                $type::ALL
                    .into_iter()
                    .find(|word| word.as_str() == text)
                    .ok_or_else(|| $crate::Invalid::value($field, text, $type::EXPECTED))
            }
        }
    };
}

pub(crate) use spelled;
