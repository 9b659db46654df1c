// Package shell runs other programs for the demo.
package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// interruptGracePeriod is how long a program may take to exit after an interrupt.
const interruptGracePeriod = 15 * time.Second

// Run runs a program and shows its output.
func Run(ctx context.Context, program string, args ...string) error {
	command := newCommand(ctx, program, args)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", commandLine(program, args), err)
	}
	return nil
}

// ExitCode runs a program and returns its exit code.
func ExitCode(ctx context.Context, out io.Writer, program string, args ...string) (int, error) {
	command := newCommand(ctx, program, args)
	command.Stdout, command.Stderr = out, os.Stderr
	err := command.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", commandLine(program, args), err)
	}
	return 0, nil
}

// RunQuietly runs a program and shows its output only if it fails.
func RunQuietly(ctx context.Context, program string, args ...string) error {
	_, err := Output(ctx, program, args...)
	return err
}

// Output runs a program and returns its standard output.
func Output(ctx context.Context, program string, args ...string) (string, error) {
	var stdout, both bytes.Buffer
	command := newCommand(ctx, program, args)
	command.Stdout, command.Stderr = io.MultiWriter(&stdout, &both), &both
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", commandLine(program, args), err, strings.TrimRight(both.String(), "\n"))
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

// newCommand interrupts the program when ctx ends, so that it can clean up. It is killed after the grace period.
func newCommand(ctx context.Context, program string, args []string) *exec.Cmd {
	command := exec.CommandContext(ctx, program, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = interruptGracePeriod
	return command
}

func commandLine(program string, args []string) string {
	return strings.Join(append([]string{program}, args...), " ")
}
