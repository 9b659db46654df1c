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

// exitDataErr, as sysexits.h has it: the job itself is wrong, and trying it again is of no
// use. After any other code it is of use, and EX_TEMPFAIL, 75, is the one to say just that.
const exitDataErr = 65

const (
	// lastWords is how much of the end of its standard error becomes part of an error.
	lastWords = 512
	// graceful is how long a command has to end by itself once it is told to.
	graceful = 3 * time.Second
	// longestHeaders is how much an environment variable is sure to hold.
	longestHeaders = 64 << 10
	// notStarted is how long a job waits for a process to be had.
	notStarted = 2 * time.Second
)

// executor runs a command for each job, which has the payload on its standard input. No
// shell is between, and nothing of the job is an argument.
type executor struct {
	command     []string
	timeout     time.Duration
	out, errOut io.Writer
}

func (e *executor) handle(ctx context.Context, job *worker.Job) error {
	environment, err := environmentOf(job)
	if err != nil {
		return err
	}
	limited := ctx
	if e.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, e.timeout)
		defer cancel()
	}
	last := &tail{}
	command := exec.CommandContext(limited, e.command[0], e.command[1:]...)
	command.Env = append(os.Environ(), environment...)
	command.Stdin = bytes.NewReader(job.Payload)
	command.Stdout, command.Stderr = e.out, io.MultiWriter(e.errOut, last)
	// Its own group, so that a signal to the worker is none to its jobs, and that what it
	// starts ends with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = graceful
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w: %w", err, worker.PutBack(notStarted))
	}
	err = command.Wait()
	if limited.Err() != nil {
		// Whoever of the group did not listen. It may be that nobody is left.
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	}
	return verdict(ctx, limited, err, last.String())
}

// verdict tells what the end of a command means for its job.
func verdict(ctx, limited context.Context, err error, last string) error {
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it succeeded, and left somebody behind
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return errors.New("it took too long")
	}
	reason := strings.TrimSpace(err.Error() + ": " + last)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitDataErr {
		return worker.DeadLetter(reason)
	}
	return errors.New(reason)
}

// environmentOf tells a command of its job. The headers are JSON in one variable: names
// that a producer chose are not those of variables.
func environmentOf(job *worker.Job) ([]string, error) {
	headers, err := json.Marshal(job.Headers)
	if err != nil {
		return nil, err
	}
	if len(headers) > longestHeaders {
		return nil, worker.DeadLetter(fmt.Sprintf("the headers are %d bytes, more than the %d that a variable is sure to hold", len(headers), longestHeaders))
	}
	return []string{
		"YARDMASTER_JOB_ID=" + job.ID,
		"YARDMASTER_JOB_QUEUE=" + job.Queue,
		"YARDMASTER_JOB_PRIORITY=" + job.Priority,
		"YARDMASTER_JOB_ATTEMPT=" + strconv.Itoa(job.Attempt),
		"YARDMASTER_JOB_MAX_ATTEMPTS=" + strconv.Itoa(job.MaxAttempts),
		"YARDMASTER_JOB_SENT=" + job.Sent.UTC().Format(time.RFC3339Nano),
		"YARDMASTER_JOB_HEADERS=" + string(headers),
	}, nil
}

// tail keeps the end of what is written to it.
type tail struct{ end []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.end = append(t.end, p...)
	if over := len(t.end) - lastWords; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.end), "") }
