// Package prerequisite checks that the machine has what a node needs, and
// installs what is missing on Debian and Ubuntu.
package prerequisite

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"strings"
)

// Prerequisite is one thing to be found on the machine.
type Prerequisite struct {
	Name     string // as a user without apt-get would look for it
	Packages []string
	found    func() bool
}

// Run are the prerequisites of a running node.
var Run = []Prerequisite{
	{"nft (of nftables)", []string{"nftables"}, program("nft")},
	{"mount (of util-linux)", []string{"mount"}, program("mount")},
	{"a statically linked busybox", []string{"busybox-static"}, func() bool { _, err := Busybox(); return err == nil }},
}

// Compile are the prerequisites of building runc, which is partly C.
var Compile = []Prerequisite{
	{"gcc", []string{"gcc"}, program("gcc")},
	{"the C library's headers and libc.a", []string{"libc6-dev"}, library("libc.a")},
	{"pkg-config", []string{"pkg-config"}, program("pkg-config")},
	{"libseccomp's headers and libseccomp.a", []string{"libseccomp-dev"}, library("libseccomp.a")},
}

// Missing returns those that were not found.
func Missing(all []Prerequisite) []Prerequisite {
	var missing []Prerequisite
	for _, each := range all {
		if !each.found() {
			missing = append(missing, each)
		}
	}
	return missing
}

// Busybox returns the path of a busybox that runs in an image without libraries.
func Busybox() (string, error) {
	path, err := find("busybox")
	if err != nil {
		return "", err
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, header := range f.Progs {
		if header.Type == elf.PT_INTERP {
			return "", errors.New(path + " is not statically linked")
		}
	}
	return path, nil
}

func program(name string) func() bool {
	return func() bool {
		_, err := find(name)
		return err == nil
	}
}

// library queries the compiler, which returns the bare name if it finds none.
func library(name string) func() bool {
	return func() bool {
		output, err := exec.Command("gcc", "-print-file-name="+name).Output()
		if err != nil {
			return false
		}
		_, err = os.Stat(strings.TrimSpace(string(output)))
		return err == nil && strings.TrimSpace(string(output)) != name
	}
}
