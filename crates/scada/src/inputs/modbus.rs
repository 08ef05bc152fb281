//! Modbus over TCP, in the protocol's own frames or in those of a serial line (RTU), by tokio-modbus.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio_modbus::client::{Client, Context, rtu, tcp};
use tokio_modbus::{ExceptionCode, Request, Response, Slave};

use super::{
    Device, Framing, Lost, Modbus, Raw, Register, Seen, Table, WordOrder, WordType, within,
};

/// The most registers of a request, by the protocol.
const MAX_REGISTERS: u16 = 125;
/// The most coils or discrete inputs of a request, by the protocol.
const MAX_BITS: u16 = 2_000;

/// Registers, or bits, that are read with one request.
#[derive(Debug, Clone, PartialEq)]
struct Block {
    table: Table,
    first: u16,
    count: u16,
    /// Which of the mapping's registers are in it.
    members: Vec<usize>,
}

pub(super) struct ModbusDevice {
    device: Modbus,
    timeout: Duration,
    blocks: Vec<Block>,
    context: Option<Context>,
}

impl ModbusDevice {
    pub(super) fn new(device: Modbus, timeout: Duration) -> ModbusDevice {
        let blocks = blocks(&device.registers);
        ModbusDevice { device, timeout, blocks, context: None }
    }

    async fn registers(&mut self, block: &Block) -> Result<Result<Vec<u16>, ExceptionCode>, Lost> {
        let context = self.context.as_mut().ok_or_else(|| Lost::because("not connected"))?;
        let request = match block.table {
            Table::Holding => Request::ReadHoldingRegisters(block.first, block.count),
            Table::Input => Request::ReadInputRegisters(block.first, block.count),
            Table::Coil => Request::ReadCoils(block.first, block.count),
            Table::Discrete => Request::ReadDiscreteInputs(block.first, block.count),
        };
        // The library's own reading methods assert the number of registers; a device may get it wrong.
        let answer = within(self.timeout, "reading", context.call(request)).await?;
        let count = usize::from(block.count);
        match answer.map_err(Lost::because)? {
            Ok(Response::ReadHoldingRegisters(words) | Response::ReadInputRegisters(words))
                if words.len() == count =>
            {
                Ok(Ok(words))
            }
            // Bits come in whole bytes; those beyond what was asked are filling.
            Ok(Response::ReadCoils(bits) | Response::ReadDiscreteInputs(bits))
                if (count..count + 8).contains(&bits.len()) =>
            {
                Ok(Ok(bits.into_iter().take(count).map(u16::from).collect()))
            }
            Ok(_) => Err(Lost::because("the device answered something else than was asked")),
            Err(exception) => Ok(Err(exception)),
        }
    }
}

impl Device for ModbusDevice {
    async fn connect(&mut self) -> Result<(), Lost> {
        let stream = within(self.timeout, "connecting", TcpStream::connect(&self.device.address));
        let stream = stream.await?.map_err(Lost::because)?;
        stream.set_nodelay(true).map_err(Lost::because)?;
        let unit = Slave(self.device.unit_id);
        self.context = Some(match self.device.framing {
            Framing::Tcp => tcp::attach_slave(stream, unit),
            Framing::RtuOverTcp => rtu::attach_slave(stream, unit),
        });
        self.blocks = blocks(&self.device.registers);
        Ok(())
    }

    async fn read(&mut self) -> Result<Vec<Seen>, Lost> {
        let unread = || Raw::Unreadable("was not read".to_owned());
        let mut raws: Vec<Raw> = self.device.registers.iter().map(|_| unread()).collect();
        let mut waiting = std::mem::take(&mut self.blocks);
        waiting.reverse();
        while let Some(block) = waiting.pop() {
            match self.registers(&block).await? {
                Ok(words) => {
                    for member in &block.members {
                        let register = &self.device.registers[*member];
                        let from = usize::from(register.first - block.first);
                        let to = from + usize::from(register.word_type.words());
                        raws[*member] = Raw::number(number(&words[from..to], register));
                    }
                }
                // One of them is not there: which one shows when each is read alone, from now on.
                Err(exception) if block.members.len() > 1 && is_about_address(exception) => {
                    let alone = block.members.iter().rev();
                    let registers = &self.device.registers;
                    waiting.extend(alone.map(|member| Block::of(registers, *member)));
                    continue;
                }
                Err(exception) => {
                    for member in &block.members {
                        raws[*member] = Raw::Unreadable(format!("the device says: {exception}"));
                    }
                }
            }
            self.blocks.push(block);
        }
        Ok(Seen::all(raws))
    }

    async fn disconnect(&mut self) {
        // There is no farewell in Modbus: closing the socket is all, and dropping does that.
        self.context = None;
    }
}

fn is_about_address(exception: ExceptionCode) -> bool {
    matches!(exception, ExceptionCode::IllegalDataAddress | ExceptionCode::IllegalDataValue)
}

impl Block {
    fn of(registers: &[Register], member: usize) -> Block {
        let Register { table, first, word_type, .. } = registers[member];
        Block { table, first, count: word_type.words(), members: vec![member] }
    }

    /// Takes in a register that begins within this block or right after it, if there is room.
    fn take(&mut self, register: &Register, member: usize) -> bool {
        let next = u32::from(self.first) + u32::from(self.count);
        let first = u32::from(register.first);
        let end = (first + u32::from(register.word_type.words())).max(next);
        let count = u16::try_from(end - u32::from(self.first)).ok();
        match count.filter(|count| *count <= self.table.most()) {
            Some(count) if register.table == self.table && first <= next => {
                self.count = count;
                self.members.push(member);
                true
            }
            _ => false,
        }
    }
}

impl Table {
    /// The most of a request.
    fn most(self) -> u16 {
        match self {
            Table::Holding | Table::Input => MAX_REGISTERS,
            Table::Coil | Table::Discrete => MAX_BITS,
        }
    }
}

/// As few requests as neighbouring registers allow. Registers that nobody asked for are not read: a device may refuse them.
fn blocks(registers: &[Register]) -> Vec<Block> {
    let mut order: Vec<usize> = (0..registers.len()).collect();
    order.sort_by_key(|member| (registers[*member].table, registers[*member].first));
    let mut blocks: Vec<Block> = Vec::new();
    for member in order {
        let taken = blocks.last_mut().is_some_and(|block| block.take(&registers[member], member));
        if !taken {
            blocks.push(Block::of(registers, member));
        }
    }
    blocks
}

/// The number in these registers.
fn number(words: &[u16], register: &Register) -> f64 {
    let join = |bits: u64, word: &u16| bits << 16 | u64::from(*word);
    let bits = match register.word_order {
        WordOrder::HighFirst => words.iter().fold(0, join),
        WordOrder::LowFirst => words.iter().rev().fold(0, join),
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "as many words were joined as the type has"
    )]
    match register.word_type {
        WordType::Bit | WordType::U16 => f64::from(bits as u16),
        WordType::I16 => f64::from((bits as u16).cast_signed()),
        WordType::U32 => f64::from(bits as u32),
        WordType::I32 => f64::from((bits as u32).cast_signed()),
        WordType::F32 => f64::from(f32::from_bits(bits as u32)),
        WordType::F64 => f64::from_bits(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(table: Table, first: u16, word_type: WordType) -> Register {
        Register { table, first, word_type, word_order: WordOrder::HighFirst }
    }

    #[test]
    fn every_type_is_read_in_both_orders() {
        let cases: [(WordType, &[u16], f64); 8] = [
            (WordType::U16, &[0xffff], 65_535.0),
            (WordType::I16, &[0xffff], -1.0),
            (WordType::U32, &[0x0001, 0x0002], 65_538.0),
            (WordType::U32, &[0xffff, 0xffff], 4_294_967_295.0),
            (WordType::I32, &[0xffff, 0xfffe], -2.0),
            (WordType::F32, &[0x4248, 0x0000], 50.0),
            (WordType::F64, &[0x4049, 0x0000, 0x0000, 0x0000], 50.0),
            (WordType::F64, &[0xc000, 0, 0, 0], -2.0),
        ];
        for (word_type, words, expected) in cases {
            let mut register = at(Table::Holding, 0, word_type);
            assert_eq!(number(words, &register), expected, "{word_type:?}");
            register.word_order = WordOrder::LowFirst;
            let turned: Vec<u16> = words.iter().rev().copied().collect();
            assert_eq!(number(&turned, &register), expected, "{word_type:?}");
        }
    }

    #[test]
    fn neighbours_share_a_request_and_the_rest_does_not() {
        let (holding, input) = (Table::Holding, Table::Input);
        let blocks = blocks(&[
            at(holding, 102, WordType::U16),
            at(holding, 100, WordType::F32),
            at(holding, 101, WordType::U16),
            at(holding, 104, WordType::U16),
            at(input, 103, WordType::U16),
            at(holding, 65_535, WordType::U16),
        ]);
        let shapes: Vec<(Table, u16, u16, Vec<usize>)> = blocks
            .into_iter()
            .map(|block| (block.table, block.first, block.count, block.members))
            .collect();
        assert_eq!(
            shapes,
            [
                (holding, 100, 3, vec![1, 2, 0]),
                (holding, 104, 1, vec![3]),
                (holding, 65_535, 1, vec![5]),
                (input, 103, 1, vec![4]),
            ]
        );
    }

    #[test]
    fn no_request_is_longer_than_the_protocol_allows() {
        let many: Vec<Register> =
            (0..200).map(|n| at(Table::Holding, n * 2, WordType::F32)).collect();
        let counts: Vec<u16> = blocks(&many).iter().map(|block| block.count).collect();
        assert_eq!(counts, [124, 124, 124, 28]);
        let bits: Vec<Register> = (0..2_500).map(|n| at(Table::Coil, n, WordType::Bit)).collect();
        let counts: Vec<u16> = blocks(&bits).iter().map(|block| block.count).collect();
        assert_eq!(counts, [2_000, 500]);
    }
}
