"""What memory `import sennit` takes, which it refuses and why, and how long it holds it."""

import array
import ctypes
import gc
import sys
import types
import unittest

import numpy
import sennit
from ranks import on_threads


class OnlyVersionedDLPack:
    """A tensor of a library that knows DLPack's version 1, and so what is read-only."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, max_version=None):
        return self.values.__dlpack__(max_version=max_version)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OnlyDLPack:
    """A tensor of a library whose objects have no buffer interface, as PyTorch's."""

    def __init__(self, values, device=None):
        self.values, self.device = values, device

    def __dlpack__(self):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.device or self.values.__dlpack_device__()


class WithoutDevice:
    """A tensor whose capsule alone says that its memory is a CUDA device's."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self):
        capsule = self.values.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        device_type = ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p))
        device_type.value = 2
        return capsule


class OfMlDtypes:
    """A numpy array of a type of ml_dtypes', which is not asked for here: its bytes, and that type's name."""

    def __init__(self, values, dtype):
        self.values, self.dtype = values, dtype

    @property
    def __array_interface__(self):
        return self.values.__array_interface__


def alone(body):
    return on_threads(1, body)[0]


class Memory(unittest.TestCase):
    def test_whatever_has_a_buffer(self):
        def body(comm):
            for x in bytearray(8), array.array("d", [1, 2]), memoryview(bytearray(4)), numpy.ones(3):
                comm.all_reduce(x)
            comm.all_reduce(b"1234", x := bytearray(4))
            self.assertEqual(x, b"1234")
            for code in "bBiIlLqQfd":
                comm.all_reduce(array.array(code, [3]), y := array.array(code, [0]))
                self.assertEqual(y[0], 3)
            whole = (ctypes.c_float * 3)(1, 2, 3)
            comm.all_reduce(whole)
            comm.all_reduce(numpy.zeros((3, 4, 2)))
            comm.all_reduce(numpy.zeros(0))

        alone(body)

    def test_tensors_through_dlpack(self):
        def body(comm):
            x = numpy.arange(6, dtype="float32")
            out = numpy.zeros(6, "float32")
            comm.all_reduce(OnlyDLPack(x), OnlyDLPack(out))
            numpy.testing.assert_array_equal(out, x)
            comm.all_reduce(OnlyDLPack(x[2:4]), OnlyDLPack(out[:2]))
            self.assertEqual(list(out[:2]), [2, 3])

        alone(body)

    @unittest.skipIf(numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0", "this numpy has no versions of DLPack")
    def test_read_only_tensors_through_dlpack(self):
        def body(comm):
            x = numpy.arange(6, dtype="float32")
            out = numpy.zeros(6, "float32")
            frozen = x.copy()
            frozen.flags.writeable = False
            comm.all_reduce(OnlyVersionedDLPack(frozen), OnlyVersionedDLPack(out))
            numpy.testing.assert_array_equal(out, x)
            for call in (
                lambda: comm.all_reduce(OnlyVersionedDLPack(frozen)),
                lambda: comm.all_reduce(x, OnlyVersionedDLPack(frozen)),
                lambda: comm.recv(OnlyVersionedDLPack(frozen), 0),
            ):
                with self.assertRaisesRegex(sennit.InvalidArgument, "it is read-only"):
                    call()
            numpy.testing.assert_array_equal(frozen, x)
            before = sys.getrefcount(x)
            comm.all_reduce(OnlyVersionedDLPack(x))
            self.assertEqual(sys.getrefcount(x), before)

        alone(body)

    def test_the_two_types_that_are_called_e4m3(self):
        def body(comm):
            one = numpy.full(1, 0x38, "uint8")
            name = "float8_e4m3fn"
            comm.all_reduce(OfMlDtypes(one, name))
            for dtype in name, types.SimpleNamespace(name=name), "float8_e4m3":  # the last is sennit's name
                comm.premul_sum(OfMlDtypes(one, name), dtype)
            other = "float8_e4m3"  # with infinities
            with self.assertRaisesRegex(sennit.InvalidArgument, f"elements of {other}; sennit has .* {name}"):
                comm.all_reduce(OfMlDtypes(one, other))
            with self.assertRaisesRegex(sennit.InvalidArgument, f"no type '{other}'"):
                comm.premul_sum(OfMlDtypes(one, name), types.SimpleNamespace(name=other))

        alone(body)

    def test_what_it_refuses_it_names(self):
        def body(comm):
            def refused(error, text, *args):
                with self.assertRaisesRegex(error, text):
                    comm.all_reduce(*args)

            bad = sennit.InvalidArgument
            refused(bad, "send: it is read-only", b"1234")
            frozen = numpy.ones(3)
            frozen.flags.writeable = False
            refused(bad, "recv: it is read-only", numpy.ones(3), frozen)
            refused(bad, "do not lie one after the other", numpy.ones((4, 4))[:, 1])
            refused(bad, "do not lie one after the other", OnlyDLPack(numpy.ones((4, 4))[:, 1]))
            refused(bad, "elements of .*; sennit has int8, ", numpy.ones(3, "int16"))
            refused(bad, "elements of .*; sennit has int8, ", numpy.ones(3, "complex64"))
            refused(bad, "elements of .*; sennit has int8, ", numpy.ones(3, bool))
            refused(bad, "elements of .*; sennit has int8, ", numpy.ones(3, ">f4"))
            refused(bad, "elements of .*; sennit has int8, ", numpy.array([object()]))
            refused(bad, "a list has neither", [1.0])
            released = memoryview(bytearray(4))
            released.release()
            with self.assertRaisesRegex(bad, "send: it does not give its buffer: .*released") as told:
                comm.all_reduce(released)
            self.assertIsInstance(told.exception.__cause__, ValueError)
            refused(bad, "one type", numpy.ones(3, "float32"), numpy.ones(3, "float64"))
            refused(bad, "send has 3 float64 and recv 4 float64", numpy.ones(3), numpy.ones(4))
            refused(sennit.Unsupported, "CUDA device", OnlyDLPack(numpy.ones(3), (2, 0)))
            x = numpy.ones(3)
            before = sys.getrefcount(x)
            refused(sennit.Unsupported, "CUDA device", WithoutDevice(x))
            self.assertEqual(sys.getrefcount(x), before)
            with self.assertRaisesRegex(bad, "must have 1 elements|of 1 ranks it must have 3"):
                comm.all_gather(numpy.ones(3), numpy.ones(4))
            with self.assertRaisesRegex(bad, "one for each of the 1 ranks"):
                comm.all_gather(numpy.ones(3), numpy.ones(3), [1, 2])
            with self.assertRaisesRegex(bad, "3 elements from 2 on"):
                comm.all_gather(numpy.ones(3), numpy.ones(4), [3], [2])
            comm.barrier()  # and is none the worse for it

        alone(body)

    def test_a_work_holds_its_memory_until_it_has_completed(self):
        def body(comm):
            x = numpy.ones(4)
            before = sys.getrefcount(x)
            work = comm.all_reduce_start(x)
            self.assertGreater(sys.getrefcount(x), before)
            work.wait()
            self.assertEqual(sys.getrefcount(x), before)
            for _ in range(100):  # nobody waits, and nobody else holds the memory
                comm.all_reduce_start(numpy.ones(100_000))
            x = bytearray(8)
            work = comm.broadcast_start(x)
            with self.assertRaises(BufferError):
                x.append(1)
            work.wait()
            x.append(1)

        alone(body)

    def test_memory_that_peers_read(self):
        def body(comm):
            memory = comm.alloc(4096)
            self.assertEqual(len(memory), 4096)
            x = numpy.frombuffer(memory, "float32")
            self.assertEqual(x.sum(), 0)
            x[:] = comm.rank
            comm.all_reduce(x)
            self.assertEqual(set(x), {1})
            y = numpy.full(1 << 16, comm.rank, "int32")
            comm.register(y)
            comm.all_reduce(y)
            self.assertEqual(set(y), {1})
            comm.deregister(y)
            with self.assertRaises(sennit.InvalidArgument):
                comm.deregister(y)
            comm.register(y)  # left to the communicator
            comm.barrier()
            comm.destroy()
            del memory
            gc.collect()
            self.assertEqual(x[0], 1)  # x refers to it

        on_threads(2, body)


if __name__ == "__main__":
    unittest.main()
