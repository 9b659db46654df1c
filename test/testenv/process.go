package testenv

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
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

// Run runs a command in the root of the repository, and returns its output.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = Root()
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, problems.String())
	}
	return output.String()
}

// Decode returns the objects of a manifest.
func Decode(t testing.TB, manifest string) (objects []*unstructured.Unstructured) {
	t.Helper()
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}
