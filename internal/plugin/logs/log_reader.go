package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxLineBytes is how much of a line is kept together.
const maxLineBytes = 64 << 10

// logReader reads one log to its end, however often the connection ends before that.
type logReader struct {
	podClient PodClient
	printer   *linePrinter
	options   StreamOptions
	// startedLater says that the log began after the command did: none of it is left out.
	startedLater bool

	lastLineTime time.Time // of the last line that was told
	printedUntil time.Time // up to which all was told before the connection was lost
}

// readToEnd tells the source's log. A log that cannot be had because its Pod is gone is said so.
func (r *logReader) readToEnd(ctx context.Context, s containerLog) error {
	for again := false; ; again = true {
		err := r.copyNewLines(ctx, s)
		if done, err := r.isReadDone(ctx, s, err, again); done {
			return err
		}
		if err := sleepContext(ctx, r.options.Retry); err != nil {
			return err
		}
	}
}

// isReadDone reports whether the log is not to be asked for once more, and what came of it. A
// log may break off before its container ends, and that it ended is known a little later.
func (r *logReader) isReadDone(ctx context.Context, s containerLog, err error, again bool) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return true, ctx.Err()
	case apierrors.IsNotFound(err):
		r.printer.printNotice(fmt.Sprintf("%s has no log of Pod %s any more: it is gone", s.describeOwner(), s.podName))
		return true, nil
	case err == nil && !r.options.Follow:
		return true, nil
	case !r.options.Follow, apierrors.IsForbidden(err), errors.Is(err, errWritingOutput):
		return true, s.wrapError(err)
	}
	ended, checkErr := r.isLogComplete(ctx, s)
	if ended && (err == nil || again) {
		return true, s.wrapError(err)
	}
	if err = errors.Join(err, checkErr); err != nil && !again {
		r.printer.printNotice(fmt.Sprintf("log of Pod %s: %v; trying again", s.podName, err))
	}
	return false, nil
}

// wrapError is an error about the source's log, nil if there is none.
func (s containerLog) wrapError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("log of Pod %s, container %s: %w", s.podName, s.container, err)
}

// isLogComplete reports whether nothing more can be written to the log.
func (r *logReader) isLogComplete(ctx context.Context, s containerLog) (bool, error) {
	pod, err := r.podClient.GetPod(ctx, s.podName)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return isContainerLogComplete(pod, s), nil
}

// copyNewLines tells what there is of the log after the last line told.
func (r *logReader) copyNewLines(ctx context.Context, s containerLog) error {
	r.printedUntil = r.lastLineTime
	stream, err := r.podClient.OpenLog(ctx, s.podName, r.podLogOptions(s))
	if err != nil {
		return err
	}
	defer stream.Close()
	lines := bufio.NewReaderSize(stream, maxLineBytes)
	for continued, wanted := false, true; ; {
		line, more, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !continued {
			line, wanted = r.acceptLine(line)
		}
		if wanted {
			if err := r.printer.printLine(s, line); err != nil {
				return errors.Join(errWritingOutput, err)
			}
		}
		continued = more
	}
}

// errWritingOutput is returned when there is nobody left to tell a log to.
var errWritingOutput = errors.New("writing the log")

// podLogOptions asks for lines with their times: by them a log that broke off is taken up again.
func (r *logReader) podLogOptions(s containerLog) *corev1.PodLogOptions {
	request := &corev1.PodLogOptions{Container: s.container, Follow: r.options.Follow && !s.previous, Previous: s.previous, Timestamps: true}
	switch {
	case !r.printedUntil.IsZero():
		request.SinceTime = &metav1.Time{Time: r.printedUntil} // in whole seconds, so some lines come again
	case !r.startedLater:
		request.TailLines = r.options.Tail
		if !r.options.Since.IsZero() {
			request.SinceTime = &metav1.Time{Time: r.options.Since}
		}
	}
	return request
}

// acceptLine is the line as it is to be told, and whether it has not been told yet.
func (r *logReader) acceptLine(line []byte) (told []byte, wanted bool) {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return line, true // without a time there is no telling
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

func sleepContext(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
