package testenv

import (
	"os"
	"os/exec"
)

// Process is a process that a test has started.
type Process struct {
	command *exec.Cmd
	exited  chan struct{}
}

// StartProcess starts a command.
func StartProcess(command *exec.Cmd) (*Process, error) {
	endWithParent(command)
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &Process{command: command, exited: make(chan struct{})}
	go func() {
		_ = command.Wait() // State says how it ended
		close(p.exited)
	}()
	return p, nil
}

// Pid returns the ID of the process.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State returns how the process has ended. Call it only after the end.
func (p *Process) State() *os.ProcessState { return p.command.ProcessState }

// Stop interrupts the process and waits for its end.
func (p *Process) Stop() { p.end(os.Interrupt) }

// Kill kills the process, which then cannot clean up, and waits for its end.
func (p *Process) Kill() { p.end(os.Kill) }

func (p *Process) end(signal os.Signal) {
	_ = p.command.Process.Signal(signal) // it may have ended
	<-p.exited
}
