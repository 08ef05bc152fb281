"""A pymodbus server: holding registers 100 to 119 and coils 0 to 15 that can be written, input register 8 that holds 1234, discrete
inputs 0 to 15 of which 3 is set. In frames of a serial line when the file that it is given says rtu."""

import asyncio
import sys
from pathlib import Path

from pymodbus import FramerType
from pymodbus.server import StartAsyncTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

bits = [SimData(0, count=16, values=False, datatype=DataType.BITS)]
holding = [SimData(100, count=20, values=0, datatype=DataType.REGISTERS)]
inputs = [SimData(8, count=1, values=1234, datatype=DataType.REGISTERS)]
discrete = [SimData(0, values=[n == 3 for n in range(16)], datatype=DataType.BITS)]
device = SimDevice(id=1, simdata=(bits, discrete, holding, inputs))
framer = FramerType.RTU if Path(sys.argv[2]).read_text() == "rtu" else FramerType.SOCKET
asyncio.run(StartAsyncTcpServer(device, address=("127.0.0.1", int(sys.argv[1])), framer=framer))
