package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// RunCommand runs a command, whose output is a matter of progress.
func RunCommand(ctx context.Context, name string, args ...string) error {
	process := exec.CommandContext(ctx, name, args...)
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	if err := process.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// PollUntil calls done until it says so.
func PollUntil(ctx context.Context, patience time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", patience, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TerminateProcess asks a process to end, and waits until it has.
func TerminateProcess(process *exec.Cmd) {
	_ = process.Process.Signal(os.Interrupt) // it may have ended
	_ = process.Wait()                       // how it ended says nothing about what was measured
}

// SleepContext waits that long.
func SleepContext(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
