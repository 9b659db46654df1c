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

// maxLine is how much of a line is kept together.
const maxLine = 64 << 10

// reader reads one log to its end, however often the connection ends before that.
type reader struct {
	cluster Cluster
	printer *printer
	options Options
	// late says that the log began after the command did: none of it is left out.
	late bool

	last time.Time // of the last line that was told
	told time.Time // up to which all was told before the connection was lost
}

// read tells the source's log. A log that cannot be had because its Pod is gone is said so.
func (r *reader) read(ctx context.Context, s source) error {
	for again := false; ; again = true {
		err := r.copy(ctx, s)
		if done, err := r.done(ctx, s, err, again); done {
			return err
		}
		if err := pause(ctx, r.options.Retry); err != nil {
			return err
		}
	}
}

// done reports whether the log is not to be asked for once more, and what came of it. A
// log may break off before its container ends, and that it ended is known a little later.
func (r *reader) done(ctx context.Context, s source, err error, again bool) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return true, ctx.Err()
	case apierrors.IsNotFound(err):
		r.printer.note(fmt.Sprintf("%s has no log of Pod %s any more: it is gone", s.whose(), s.pod))
		return true, nil
	case err == nil && !r.options.Follow:
		return true, nil
	case !r.options.Follow, apierrors.IsForbidden(err), errors.Is(err, errOutput):
		return true, s.failed(err)
	}
	ended, checkErr := r.ended(ctx, s)
	if ended && (err == nil || again) {
		return true, s.failed(err)
	}
	if err = errors.Join(err, checkErr); err != nil && !again {
		r.printer.note(fmt.Sprintf("log of Pod %s: %v; trying again", s.pod, err))
	}
	return false, nil
}

// failed is an error about the source's log, nil if there is none.
func (s source) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("log of Pod %s, container %s: %w", s.pod, s.container, err)
}

// ended reports whether nothing more can be written to the log.
func (r *reader) ended(ctx context.Context, s source) (bool, error) {
	pod, err := r.cluster.Pod(ctx, s.pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return stopped(pod, s), nil
}

// copy tells what there is of the log after the last line told.
func (r *reader) copy(ctx context.Context, s source) error {
	r.told = r.last
	stream, err := r.cluster.Log(ctx, s.pod, r.request(s))
	if err != nil {
		return err
	}
	defer stream.Close()
	lines := bufio.NewReaderSize(stream, maxLine)
	for continued, wanted := false, true; ; {
		line, more, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !continued {
			line, wanted = r.take(line)
		}
		if wanted {
			if err := r.printer.line(s, line); err != nil {
				return errors.Join(errOutput, err)
			}
		}
		continued = more
	}
}

// errOutput is returned when there is nobody left to tell a log to.
var errOutput = errors.New("writing the log")

// request asks for lines with their times: by them a log that broke off is taken up again.
func (r *reader) request(s source) *corev1.PodLogOptions {
	request := &corev1.PodLogOptions{Container: s.container, Follow: r.options.Follow && !s.previous, Previous: s.previous, Timestamps: true}
	switch {
	case !r.told.IsZero():
		request.SinceTime = &metav1.Time{Time: r.told} // in whole seconds, so some lines come again
	case !r.late:
		request.TailLines = r.options.Tail
		if !r.options.Since.IsZero() {
			request.SinceTime = &metav1.Time{Time: r.options.Since}
		}
	}
	return request
}

// take is the line as it is to be told, and whether it has not been told yet.
func (r *reader) take(line []byte) (told []byte, wanted bool) {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return line, true // without a time there is no telling
	}
	if !at.After(r.told) {
		return nil, false
	}
	r.last = at
	if r.options.Timestamps {
		return line, true
	}
	return rest, true
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
