package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

const (
	// outputDelay is how long output of an ended agent is still read: a remaining child process may have the output open.
	outputDelay = 2 * time.Second
	// maxMalformedEvents is how many malformed lines are reported. Further lines are only counted.
	maxMalformedEvents = 100
)

// agent is a process of an agent.
type agent struct {
	command   *agentprofile.Command
	directory string
	// grace is the time between SIGTERM and SIGKILL.
	grace time.Duration
	// exitDelay is how long an agent may be silent after its result before it gets SIGTERM: some agents do not exit.
	exitDelay time.Duration
	events    *emitter
	// observe is called for each event, and after each line of output with an empty event. It must not wait.
	observe func(*agentprofile.Event)

	mutex     sync.Mutex
	parser    agentprofile.Parser
	malformed int
	// silence ends the agent when it is silent after its result.
	silence  *time.Timer
	finished bool
}

type agentEnd struct {
	exitCode int
	// signal that ended the process; 0 if it exited.
	signal syscall.Signal
	// terminated means that the runner got SIGTERM and terminated the process.
	terminated bool
	// silent means that the process did not exit after its result, and was terminated.
	silent bool
}

// errSilent is the cause of the end of an agent that did not exit after its result.
var errSilent = errors.New("the agent reported its result and did not exit")

// run starts the agent and waits for its end. When ctx ends, it sends SIGTERM to the agent and all processes below it, and SIGKILL
// after the grace period. Processes that an agent leaves behind get both, too.
func (a *agent) run(ctx context.Context, environment []string) (agentEnd, error) {
	for _, file := range a.command.Files {
		if err := writeFile(file); err != nil {
			return agentEnd{}, err
		}
	}
	path, err := exec.LookPath(a.command.Arguments[0])
	if err != nil {
		return agentEnd{}, err
	}
	command := exec.Command(path, a.command.Arguments[1:]...) //nolint:noctx // it gets SIGTERM, and not SIGKILL, when ctx ends
	command.Dir = a.directory
	command.Env = append([]string(nil), environment...)
	for name, value := range a.command.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Stdin = strings.NewReader(a.command.Stdin)
	stdout, stopStdout := a.pipe(a.handleLine)
	stderr, stopStderr := a.pipe(func(line []byte, omitted int64) {
		a.handleEvent(agentprofile.Event{Type: agentprofile.EventOutput, Text: string(line), Omitted: omitted})
	})
	command.Stdout, command.Stderr = stdout, stderr
	command.WaitDelay = outputDelay
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	a.silence = time.AfterFunc(a.exitDelay, func() { end(errSilent) })
	a.silence.Stop() // until the result
	defer func() { a.silence.Stop() }()
	known := processesBelow(nil, false)
	if err := command.Start(); err != nil {
		return agentEnd{}, err
	}
	asked := make(chan struct{})
	stop := context.AfterFunc(running, func() {
		defer close(asked)
		endProcesses(known, a.grace, false)
	})
	err = command.Wait()
	terminated, delay := !stop(), min(a.grace, stopDelay)
	if terminated {
		<-asked
		delay = 0
	}
	// Remaining processes must not change the workspace while it is committed.
	if remaining := endProcesses(known, delay, true); remaining > 0 {
		a.events.report("%d processes of the agent could not be ended, and may still change its files", remaining)
	}
	stopStdout()
	stopStderr()
	for _, event := range a.parser.End() {
		a.handleEvent(event)
	}
	if a.malformed > 0 {
		a.events.report("%d lines of the agent's output were not in the format of its profile", a.malformed)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return agentEnd{}, err
	}
	silent := errors.Is(context.Cause(running), errSilent)
	if silent {
		a.events.report("The agent reported its result, and did not exit within %s: it was ended", a.exitDelay)
	}
	ended := agentEnd{exitCode: command.ProcessState.ExitCode(), terminated: terminated && !silent, silent: silent}
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		ended.signal = status.Signal()
	}
	return ended, nil
}

// pipe returns a writer that passes its lines to handle, and a function that waits until all lines are handled.
func (*agent) pipe(handle func([]byte, int64)) (io.Writer, func()) {
	reader, writer := io.Pipe()
	var done sync.WaitGroup
	done.Go(func() {
		_ = readLines(reader, handle) // a pipe has no errors of its own
	})
	return writer, func() { _ = writer.Close(); done.Wait() }
}

func (a *agent) handleLine(line []byte, omitted int64) {
	if omitted > 0 {
		a.handleEvent(agentprofile.Event{Type: agentprofile.EventOutput, Omitted: omitted})
		return
	}
	a.mutex.Lock()
	events, err := a.parser.Parse(line)
	a.mutex.Unlock()
	if err != nil {
		a.malformed++
		if a.malformed <= maxMalformedEvents {
			a.handleEvent(agentprofile.Event{Type: agentprofile.EventOutput, Text: string(line)})
		}
	}
	for _, event := range events {
		a.handleEvent(event)
	}
	a.restartSilence(false)
	a.observe(&agentprofile.Event{})
}

func (a *agent) handleEvent(event agentprofile.Event) {
	a.restartSilence(event.Type == agentprofile.EventResult)
	a.observe(&event)
	a.events.emit(event)
}

// restartSilence restarts the time in which an agent that has finished has to exit, because it wrote something.
func (a *agent) restartSilence(isResult bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.finished = a.finished || isResult
	if a.finished || a.parser.Finished() {
		a.silence.Reset(a.exitDelay)
	} else {
		a.silence.Stop()
	}
}

func writeFile(file agentprofile.File) error {
	const mode = 0o600
	if err := os.MkdirAll(filepath.Dir(file.Path), directoryMode); err != nil {
		return err
	}
	if err := os.WriteFile(file.Path, []byte(file.Content), mode); err != nil {
		return fmt.Errorf("writing the configuration of the agent: %w", err)
	}
	return nil
}

const (
	// maxLineBytes bounds the memory for a line of an agent. Results are shorter; longer lines come from tools.
	maxLineBytes = 1 << 20
	readBytes    = 64 << 10
)

// readLines calls handle for each line. It omits a line that is too long, and passes its length instead.
func readLines(from io.Reader, handle func(line []byte, omitted int64)) error {
	reader := bufio.NewReaderSize(from, readBytes)
	var line []byte
	var omitted int64
	for {
		part, err := reader.ReadSlice('\n')
		switch {
		case omitted > 0:
			omitted += int64(len(part))
		case len(line)+len(part) > maxLineBytes:
			omitted, line = int64(len(line)+len(part)), nil // usual lines do not need its memory
		default:
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(line) > 0 || omitted > 0 {
			handle(trimNewline(line), omitted)
		}
		line, omitted = line[:0], 0
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}
