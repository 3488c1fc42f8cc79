"""Builds tests/package/consumer.c and consumer.cpp with the package, and runs both programs."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TdictTestConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str, run=True)  # run: the programs of a static package, too

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        kind = "shared" if self.dependencies["tdict"].options.shared else "static"
        cmake.configure(variables={"TDICT_KIND": kind})
        cmake.build()

    def test(self):
        if can_run(self):
            for program in ("consumer_c", "consumer_cxx"):
                self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
            if self.dependencies["tdict"].options.tools:
                for program in ("tdict", "tdict-bench"):
                    self.run(f"{program} --version", env="conanrun")
