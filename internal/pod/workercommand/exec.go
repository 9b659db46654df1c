package workercommand

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/worker"
)

// exitDataError is EX_DATAERR of sysexits.h: the job itself is invalid, so no retry can succeed. Every other code leads to a retry;
// EX_TEMPFAIL, 75, requests a retry explicitly.
const exitDataError = 65

const (
	// errorTailBytes is the length of the end of standard error in an error.
	errorTailBytes = 512
	// terminationGracePeriod is the time between SIGTERM and SIGKILL.
	terminationGracePeriod = 3 * time.Second
	// maxHeaderBytes fits into an environment variable on every platform.
	maxHeaderBytes = 64 << 10
	// startFailureDelay is the time until redelivery of a job whose command did not start.
	startFailureDelay = 2 * time.Second
)

// commandRunner runs a command for each job, with the payload on standard input. It uses no shell, and no argument depends on the
// job, so that payloads cannot inject commands.
type commandRunner struct {
	command []string
	// timeout of the command; 0: no limit.
	timeout     time.Duration
	out, errOut io.Writer
}

func (r *commandRunner) handle(ctx context.Context, job *worker.Job) error {
	environment, err := jobEnvironment(job)
	if err != nil {
		return err
	}
	commandContext := ctx
	if r.timeout > 0 {
		var cancel context.CancelFunc
		commandContext, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	errorTail := &tailBuffer{}
	command := exec.CommandContext(commandContext, r.command[0], r.command[1:]...)
	command.Env = append(append(os.Environ(), environment...), traceEnvironment(ctx)...)
	command.Stdin = bytes.NewReader(job.Payload)
	command.Stdout, command.Stderr = r.out, io.MultiWriter(r.errOut, errorTail)
	// The command gets its own process group: a signal to the worker's group does not reach it, and its child processes can be
	// terminated together with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = terminationGracePeriod
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w: %w", err, worker.Snooze(startFailureDelay))
	}
	err = command.Wait()
	if commandContext.Err() != nil {
		// Kill processes of the group that ignored SIGTERM. This fails if no process is left.
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	}
	return classifyExit(ctx, commandContext, err, errorTail.String())
}

// classifyExit turns the end of a command into the result of its job.
func classifyExit(ctx, commandContext context.Context, err error, errorTail string) error {
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // a child process still has its output open
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case commandContext.Err() != nil:
		return errors.New("the command exceeded its time limit")
	}
	reason := strings.TrimSpace(err.Error() + ": " + errorTail)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitDataError {
		return worker.DeadLetter(reason)
	}
	return errors.New(reason)
}

// jobEnvironment returns the environment variables that describe a job. All headers are JSON in one variable, because producers could
// choose names such as PATH.
func jobEnvironment(job *worker.Job) ([]string, error) {
	headers, err := json.Marshal(job.Headers)
	if err != nil {
		return nil, err
	}
	if len(headers) > maxHeaderBytes {
		return nil, worker.DeadLetter(fmt.Sprintf("the headers have %d bytes, more than the %d that fit into an environment variable", len(headers), maxHeaderBytes))
	}
	return []string{
		"YARDMASTER_JOB_ID=" + job.ID,
		"YARDMASTER_JOB_KIND=" + kindOf(job),
		"YARDMASTER_JOB_QUEUE=" + job.Queue,
		"YARDMASTER_JOB_PRIORITY=" + job.Priority,
		"YARDMASTER_JOB_ATTEMPT=" + strconv.Itoa(job.Attempt),
		"YARDMASTER_JOB_MAX_ATTEMPTS=" + strconv.Itoa(job.MaxAttempts),
		"YARDMASTER_JOB_SENT=" + job.SentTime.UTC().Format(time.RFC3339Nano),
		"YARDMASTER_JOB_HEADERS=" + string(headers),
	}, nil
}

// tailBuffer keeps the last errorTailBytes.
type tailBuffer struct{ tail []byte }

// Write implements io.Writer.
func (b *tailBuffer) Write(p []byte) (int, error) {
	b.tail = append(b.tail, p...)
	if excess := len(b.tail) - errorTailBytes; excess > 0 {
		b.tail = append(b.tail[:0], b.tail[excess:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string { return strings.ToValidUTF8(string(b.tail), "") }
