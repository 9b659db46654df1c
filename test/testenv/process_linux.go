package testenv

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill a process when the test program ends, also if a timeout or a signal ends it before its
// cleanups run.
func endWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
