//! What can go wrong in the engine itself. What goes wrong with a row is an [`crate::Outcome`].

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database, or the way to it.
    #[error(transparent)]
    Postgres(#[from] pg::Error),
    /// A description or an option that cannot work.
    #[error("{what} cannot work: {problem}")]
    Setting {
        /// Which description or option.
        what: &'static str,
        /// Why it cannot.
        problem: String,
    },
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::Postgres(pg::Error::from(error))
    }
}

impl Error {
    /// True when the same work may succeed later: the database is away, or another transaction was
    /// in the way.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Postgres(error) => {
                matches!(error.about(), pg::About::Destination | pg::About::Conflict)
            }
            Error::Setting { .. } => false,
        }
    }
}
