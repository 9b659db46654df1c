package workercommand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/yardmaster/yardmaster/worker"
)

// The headers of a request that tell of its job. Those its producer gave it come with
// headerOwn before their names: they must not pass for anything else.
const (
	headerID          = "Yardmaster-Job-Id"
	headerQueue       = "Yardmaster-Job-Queue"
	headerPriority    = "Yardmaster-Job-Priority"
	headerAttempt     = "Yardmaster-Job-Attempt"
	headerMaxAttempts = "Yardmaster-Job-Max-Attempts"
	headerSent        = "Yardmaster-Job-Sent"
	headerOwn         = "Yardmaster-Header-"
)

const (
	// told is how much of an answer becomes part of an error.
	told = 512
	// read is how much of an answer is read at all, for its connection to be used again.
	read = 64 << 10
	// longestRetryAfter bounds what an answer may ask for.
	longestRetryAfter = 24 * time.Hour
	// absent is how long a job waits for its server to be there.
	absent = 2 * time.Second
)

// forwarder sends jobs to an HTTP server.
type forwarder struct {
	target string
	client *http.Client
}

func newForwarder(target *url.URL, timeout time.Duration) *forwarder {
	return &forwarder{target: target.String(), client: &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			// No proxy: it is a server beside this one.
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 1000, // one for each job at a time
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		},
		// A job is sent where it is to go, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (f *forwarder) handle(ctx context.Context, job *worker.Job) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.target, bytes.NewReader(job.Payload))
	if err != nil {
		return err
	}
	describe(request.Header, job)
	answer, err := f.client.Do(request)
	if err != nil {
		return unanswered(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, read))
	if err != nil && answer.StatusCode/100 != 2 {
		return fmt.Errorf("answered %s, and no more: %w", answer.Status, err)
	}
	return judge(answer, string(text[:min(len(text), told)]), time.Now())
}

// describe sets the headers of a job's request.
func describe(header http.Header, job *worker.Job) {
	header.Set("Content-Type", "application/octet-stream")
	for name, values := range job.Headers {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				continue // HTTP cannot say it
			}
			header.Add(headerOwn+name, value)
			if strings.EqualFold(name, "Content-Type") {
				header.Set("Content-Type", value)
			}
		}
	}
	header.Set(headerID, job.ID)
	header.Set(headerQueue, job.Queue)
	header.Set(headerPriority, job.Priority)
	header.Set(headerAttempt, strconv.Itoa(job.Attempt))
	header.Set(headerMaxAttempts, strconv.Itoa(job.MaxAttempts))
	header.Set(headerSent, job.Sent.UTC().Format(time.RFC3339Nano))
}

// unanswered is what no answer means: if nobody listens, the job was not tried.
func unanswered(err error) error {
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w: %w", err, worker.PutBack(absent))
	}
	return err
}

// judge tells what an answer means for the job.
func judge(answer *http.Response, text string, now time.Time) error {
	status := answer.StatusCode
	reason := strings.TrimSpace("answered " + answer.Status + " " + text)
	switch {
	case status/100 == 2:
		return nil
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		if after, found := retryAfter(answer.Header.Get("Retry-After"), now); found {
			return fmt.Errorf("%s: %w", reason, worker.Retry(after))
		}
		return errors.New(reason)
	case status/100 == 4:
		return worker.DeadLetter(reason)
	default:
		return errors.New(reason)
	}
}

// retryAfter reads seconds, or a date.
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, longestRetryAfter), true
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(date.Sub(now), 0), longestRetryAfter), true
}
