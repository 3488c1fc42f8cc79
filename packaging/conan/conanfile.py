"""Conan 2 recipe of tdict, from the source release that scripts/release writes to build/release.

usage: scripts/release && conan create packaging/conan"""

import glob
import os
import re

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir, unzip
from conan.tools.system.package_manager import Apt, Dnf

required_conan_version = ">=2.0"


class TdictConan(ConanFile):
    name = "tdict"
    description = "Trees of tensors and their transfer to GPUs"
    license = "Apache-2.0"
    topics = ("tensor", "tensordict", "cuda", "pinned-memory")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # tools: the programs tdict and tdict-bench. tdict-bench needs jansson of the system.
    options = {"shared": [True, False], "fPIC": [True, False], "tools": [True, False]}
    default_options = {"shared": False, "fPIC": True, "tools": True}
    implements = ["auto_shared_fpic"]
    languages = "C"

    def set_version(self):
        header = os.path.join(self.recipe_folder, "..", "..", "include", "tdict", "tdict.h")
        numbers = re.findall(r"^#define TDICT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", load(self, header), re.M)
        self.version = self.version or ".".join(numbers)

    def export_sources(self):
        folder = os.path.join(self.recipe_folder, "..", "..", "build", "release")
        if not glob.glob(os.path.join(folder, f"tdict-{self.version}.tar.gz")):
            raise ConanException(f"{folder} has no tdict-{self.version}.tar.gz: run scripts/release")
        copy(self, f"tdict-{self.version}.tar.gz", folder, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanException("tdict needs Linux")

    def system_requirements(self):
        if self.options.tools:
            Apt(self).install(["libjansson-dev", "pkgconf"], check=True)
            Dnf(self).install(["jansson-devel", "pkgconf"], check=True)

    def layout(self):
        cmake_layout(self, src_folder="src")

    def source(self):
        unzip(self, os.path.join(self.export_sources_folder, f"tdict-{self.version}.tar.gz"), strip_root=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("TESTS", "EXAMPLES"):
            toolchain.cache_variables[f"TDICT_BUILD_{name}"] = False
        for name in ("BENCH", "TOOL"):
            toolchain.cache_variables[f"TDICT_BUILD_{name}"] = bool(self.options.tools)
        toolchain.cache_variables["TDICT_NVTX"] = "OFF"
        toolchain.cache_variables["TDICT_MPI"] = "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))  # Conan writes the file for pkg-config itself

    def package_info(self):
        self.cpp_info.libs = ["tdict"]
        self.cpp_info.system_libs = ["pthread", "dl", "m"]
        # The package's own files for CMake, which know the components.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake")]
        self.cpp_info.set_property("pkg_config_name", "tdict")
        parts = re.findall(r"#define TDICT_(HAS_\w+) ([01])", load(self, os.path.join(self.package_folder, "include/tdict/config.h")))
        self.cpp_info.set_property("pkg_config_custom_content", {name.lower(): value for name, value in parts})
