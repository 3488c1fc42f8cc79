"""Calls the file functions of libtdict.so through ctypes, for the scripts in this folder. Import this module before
removing the folder from sys.path."""

import ctypes


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("native", ctypes.c_int32), ("path", ctypes.c_char * 248), ("message", ctypes.c_char * 256)]


class OpenOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("keys", ctypes.c_void_p), ("num_keys", ctypes.c_size_t),
                ("strip_prefix", ctypes.c_char_p), ("add_prefix", ctypes.c_char_p), ("flat", ctypes.c_bool),
                ("follows_links", ctypes.c_bool), ("check_crc", ctypes.c_bool)]


class SaveOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("max_shard_bytes", ctypes.c_uint64), ("without_structure", ctypes.c_bool),
                ("format", ctypes.c_int32)]


class Tdict:
    def __init__(self, library):
        self.c = ctypes.CDLL(library)
        self.error = Error()

    def call(self, name, *arguments):
        if getattr(self.c, name)(*arguments, ctypes.byref(self.error)) != 0:
            raise RuntimeError(f"{self.error.path.decode()}: {self.error.message.decode()}")

    def open(self, source, flat=False):
        tree = ctypes.c_void_p()
        options = OpenOptions(struct_size=ctypes.sizeof(OpenOptions), flat=flat, check_crc=True)
        self.call("tdict_open", str(source).encode(), ctypes.byref(options), ctypes.byref(tree))
        return tree

    def rewrite(self, source, target, flat=False, **options):
        """Opens a file and saves the tree to another file. The options are fields of SaveOptions."""
        tree = self.open(source, flat)
        given = SaveOptions(struct_size=ctypes.sizeof(SaveOptions), **options)
        try:
            self.call("tdict_save", None, str(target).encode(), tree, ctypes.byref(given))
        finally:
            self.c.tdict_release(tree)

    def append(self, target, source):
        tree = self.open(source)
        try:
            self.call("tdict_append", None, str(target).encode(), tree, None)
        finally:
            self.c.tdict_release(tree)

    def refuses(self, path, text):
        """Checks that tdict refuses a file with an error message that contains `text`."""
        try:
            self.c.tdict_release(self.open(path))
        except RuntimeError as error:
            assert text in str(error), error
            return
        raise AssertionError(f"{path} was accepted")
