"""A pymodbus server: holding registers 100 to 119 that can be written, input register 8 that holds 1234."""

import asyncio
import sys

from pymodbus.server import StartAsyncTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

bits = [SimData(0, count=16, values=False, datatype=DataType.BITS)]
holding = [SimData(100, count=20, values=0, datatype=DataType.REGISTERS)]
inputs = [SimData(8, count=1, values=1234, datatype=DataType.REGISTERS)]
device = SimDevice(id=1, simdata=(bits, bits, holding, inputs))
asyncio.run(StartAsyncTcpServer(device, address=("127.0.0.1", int(sys.argv[1]))))
