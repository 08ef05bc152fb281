//! Rows for COPY in its binary format, made before there is a connection to send them on.
//!
//! A row can so be encoded on the thread that read the message, while the database works on the batch before; and rows go out in pieces of
//! 32 KiB, each of which wakes the connection once, where the client's own writer wakes it every 4 KiB.

use std::error::Error as StdError;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::SinkExt as _;
use tokio_postgres::Statement;
use tokio_postgres::types::{IsNull, ToSql, Type};

use crate::{Error, Transaction};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// As much as is sent at once, and a row more. The server works on one piece while the next one is on its way.
const PIECE_BYTES: usize = 32 << 10;

/// A row that is encoded.
#[derive(Debug, Clone)]
pub struct Row(Bytes);

/// A value that its column's type cannot have.
#[derive(Debug, thiserror::Error)]
#[error("the value of column {column} cannot be encoded: {problem}")]
pub struct NotEncoded {
    column: usize,
    problem: Box<dyn StdError + Sync + Send>,
}

impl Row {
    /// Encodes the columns of a row, each with its type.
    pub fn encode(columns: &[(&(dyn ToSql + Sync), Type)]) -> Result<Row, NotEncoded> {
        // Most of our rows are shorter, which spares the buffer its growth.
        let mut buffer = BytesMut::with_capacity(256);
        let count = i16::try_from(columns.len())
            .map_err(|error| NotEncoded { column: columns.len(), problem: error.into() })?;
        buffer.put_i16(count);
        for (column, (value, kind)) in columns.iter().enumerate() {
            let failed = |problem| NotEncoded { column, problem };
            let at = buffer.len();
            buffer.put_i32(0);
            let length = match value.to_sql_checked(kind, &mut buffer).map_err(failed)? {
                IsNull::Yes => -1,
                IsNull::No => {
                    i32::try_from(buffer.len() - at - 4).map_err(|error| failed(error.into()))?
                }
            };
            buffer[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(Row(buffer.freeze()))
    }
}

/// Sends rows with a `COPY … FROM STDIN BINARY` whose columns they have. Returns how many there were.
pub async fn send<'a>(
    transaction: &Transaction<'_>,
    statement: &Statement,
    rows: impl Iterator<Item = &'a Row>,
) -> Result<u64, Error> {
    let mut sink = Box::pin(transaction.copy_in::<_, Bytes>(statement).await?);
    let mut piece = BytesMut::with_capacity(2 * PIECE_BYTES);
    piece.put_slice(SIGNATURE);
    // Neither flags nor an extension of the header.
    piece.put_i64(0);
    for Row(row) in rows {
        piece.put_slice(row);
        if piece.len() >= PIECE_BYTES {
            sink.send(piece.split().freeze()).await?;
            piece.reserve(2 * PIECE_BYTES);
        }
    }
    // No more rows.
    piece.put_i16(-1);
    sink.send(piece.freeze()).await?;
    Ok(sink.as_mut().finish().await?)
}
