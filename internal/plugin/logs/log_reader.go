package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

const (
	// maxLineBytes is the length from which a line is printed in several parts, so that the memory for it is limited. The labels of
	// all parts but the first end with continuedLabel.
	maxLineBytes   = 1 << 20
	continuedLabel = " +|"
	readBytes      = 32 << 10
)

// logReader reads one log to its end and reconnects when the connection breaks.
type logReader struct {
	podClient PodClient
	printer   *linePrinter
	options   StreamOptions
	// startedLater is set if the log started after the command. Tail and Since do not apply to it.
	startedLater bool

	// lastLineTime is the time of the last printed line, and printedUntil its value when the connection was opened.
	lastLineTime time.Time
	printedUntil time.Time
}

// readToEnd prints a log. If the Pod is deleted, it prints a notice.
func (r *logReader) readToEnd(ctx context.Context, l containerLog) error {
	for isRetry := false; ; isRetry = true {
		err := r.copyNewLines(ctx, l)
		if done, err := r.isReadDone(ctx, l, err, isRetry); done {
			return err
		}
		if err := clock.SleepContext(ctx, r.options.Retry); err != nil {
			return err
		}
	}
}

// isReadDone reports whether to stop reading, and with which error. The API server may end the stream before the container ends, and
// the Pod's status shows the end a little later.
func (r *logReader) isReadDone(ctx context.Context, l containerLog, err error, isRetry bool) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return true, ctx.Err()
	case apierrors.IsNotFound(err):
		ownerType := "step"
		if l.ownerIsAttempt {
			ownerType = "attempt"
		}
		r.printer.printNotice("%s %s has no log: Pod %s is deleted", ownerType, l.owner, l.podName)
		return true, nil
	case err == nil && !r.options.Follow:
		return true, nil
	case !r.options.Follow, apierrors.IsForbidden(err), errors.Is(err, errWritingOutput):
		return true, l.wrapError(err)
	}
	isComplete, checkErr := r.isLogComplete(ctx, l)
	if isComplete && (err == nil || isRetry) {
		return true, l.wrapError(err)
	}
	if err = errors.Join(err, checkErr); err != nil && !isRetry {
		r.printer.printNotice("log of Pod %s: %v; retrying", l.podName, err)
	}
	return false, nil
}

// wrapError adds the Pod and container to an error. It returns nil for nil.
func (l containerLog) wrapError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("log of Pod %s, container %s: %w", l.podName, l.container, err)
}

// isLogComplete reports whether the container can no longer write to the log: it has exited, restarted or disappeared.
func (r *logReader) isLogComplete(ctx context.Context, l containerLog) (bool, error) {
	pod, err := r.podClient.GetPod(ctx, l.podName)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, status := range containerStatuses(pod) {
		if status.Name == l.container {
			return status.State.Running == nil || status.RestartCount != l.restartCount, nil
		}
	}
	return true, nil
}

// copyNewLines prints the lines after the last printed line until the stream ends.
func (r *logReader) copyNewLines(ctx context.Context, l containerLog) error {
	r.printedUntil = r.lastLineTime
	stream, err := r.podClient.OpenLog(ctx, l.podName, r.podLogOptions(l))
	if err != nil {
		return err
	}
	defer stream.Close()
	lines, part := bufio.NewReaderSize(stream, readBytes), []byte(nil)
	for isContinuation, isNew, isEnd := false, true, false; !isEnd; {
		read, hasMore, err := lines.ReadLine()
		if isEnd = errors.Is(err, io.EOF); err != nil && !isEnd {
			return err // a line whose end was not read is read again
		}
		part = append(part, read...)
		if hasMore && len(part) < maxLineBytes || isEnd && len(part) == 0 {
			continue
		}
		printed := part
		if !isContinuation {
			printed, isNew = r.acceptLine(part)
		}
		if isNew {
			if err := r.printer.printLine(l, printed, isContinuation); err != nil {
				return errors.Join(errWritingOutput, err)
			}
		}
		part, isContinuation = part[:0], hasMore
	}
	return nil
}

// errWritingOutput is returned when the output is closed.
var errWritingOutput = errors.New("writing the log")

// podLogOptions always requests timestamps: they show which lines are new after a reconnect.
func (r *logReader) podLogOptions(l containerLog) *corev1.PodLogOptions {
	options := &corev1.PodLogOptions{Container: l.container, Follow: r.options.Follow && !l.previous, Previous: l.previous, Timestamps: true}
	switch {
	case !r.printedUntil.IsZero():
		// SinceTime has a precision of a second, so some lines repeat.
		options.SinceTime = &metav1.Time{Time: r.printedUntil}
	case !r.startedLater:
		options.TailLines = r.options.Tail
		if !r.options.Since.IsZero() {
			options.SinceTime = &metav1.Time{Time: r.options.Since}
		}
	}
	return options
}

// acceptLine returns the line to print, and whether it is new. A line without a timestamp is always new.
func (r *logReader) acceptLine(line []byte) (printed []byte, isNew bool) {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return line, true
	}
	if !at.After(r.printedUntil) {
		return nil, false
	}
	r.lastLineTime = at
	if r.options.Timestamps {
		return line, true
	}
	return rest, true
}

// linePrinter prints the lines of several logs, each with its label. It never mixes two lines.
type linePrinter struct {
	out, errOut io.Writer
	style       terminal.Style
	// render returns the lines to print for a line; nil prints each line unchanged.
	render func(line []byte) []string

	mutex       sync.Mutex
	ownerColors map[string]terminal.Color
}

// labelColors omits red, which marks failures.
var labelColors = []terminal.Color{terminal.Cyan, terminal.Green, terminal.Yellow, terminal.Magenta, terminal.Blue}

// printLine prints a line, or a later part of it, unchanged, unless it is rendered: programs may use colors in their logs.
func (p *linePrinter) printLine(l containerLog, line []byte, isContinuation bool) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	color, known := p.ownerColors[l.owner]
	if !known {
		color = labelColors[len(p.ownerColors)%len(labelColors)]
		p.ownerColors[l.owner] = color
	}
	end := " |"
	if isContinuation {
		end = continuedLabel
	}
	label := p.style.Colorize(color, l.label+end)
	lines := []string{string(line)}
	if p.render != nil {
		lines = p.render(line)
	}
	for _, rendered := range lines {
		if _, err := fmt.Fprintf(p.out, "%s %s\n", label, rendered); err != nil {
			return err
		}
	}
	return nil
}

// printNotice prints a message of the plugin on standard error, apart from the logs.
func (p *linePrinter) printNotice(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.errOut, terminal.Sanitize(fmt.Sprintf(format, args...)))
}
