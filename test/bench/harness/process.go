package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// RunCommand runs a command. Its output goes to standard error.
func RunCommand(ctx context.Context, name string, args ...string) error {
	process := exec.CommandContext(ctx, name, args...)
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	if err := process.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// PollUntil calls done until it returns true or an error, for the timeout at most.
func PollUntil(ctx context.Context, timeout time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out after %s: %w", timeout, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// terminateProcess interrupts a process and waits until it exits.
func terminateProcess(process *exec.Cmd) {
	_ = process.Process.Signal(os.Interrupt) // it may have exited
	_ = process.Wait()                       // its exit code does not affect the measurement
}
