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
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"golang.org/x/net/http/httpguts"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker"
)

// Request headers that describe the job.
const (
	headerJobID       = "Yardmaster-Job-Id"
	headerKind        = "Yardmaster-Job-Kind"
	headerQueue       = "Yardmaster-Job-Queue"
	headerPriority    = "Yardmaster-Job-Priority"
	headerAttempt     = "Yardmaster-Job-Attempt"
	headerMaxAttempts = "Yardmaster-Job-Max-Attempts"
	headerSentTime    = "Yardmaster-Job-Sent"
	// producerHeaderPrefix is the prefix of the producer's headers, so that they cannot be mistaken for headers of the worker.
	producerHeaderPrefix = "Yardmaster-Header-"
)

const (
	// errorBodyBytes is the length of a response body in an error.
	errorBodyBytes = 512
	// maxBodyBytes is the length up to which a response body is read, so that the connection can be reused.
	maxBodyBytes = 64 << 10
	// maxRetryAfter bounds the Retry-After of a response.
	maxRetryAfter = 24 * time.Hour
	// unreachableDelay is the time until redelivery of a job whose server accepts no connections.
	unreachableDelay   = 2 * time.Second
	dialTimeout        = 5 * time.Second
	idleTimeout        = time.Minute
	maxIdleConnections = 1000 // more than the usual concurrency
)

// forwarder sends jobs to an HTTP server.
type forwarder struct {
	target string
	// timeout of jobs whose queue has none.
	timeout time.Duration
	client  *http.Client
	// address is the host and port of the target.
	address string
	// running is the number of requests, and isSuspect is true after a request without a response, until the server accepts a connection.
	running   atomic.Int64
	isSuspect atomic.Bool
}

func newForwarder(target *url.URL, timeout time.Duration) *forwarder {
	port := target.Port()
	if port == "" {
		port = target.Scheme // http and https are names of ports
	}
	return &forwarder{target: target.String(), timeout: timeout, address: net.JoinHostPort(target.Hostname(), port), client: &http.Client{
		Transport: &http.Transport{
			// Proxy is not set, because the server usually runs in the same Pod.
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			MaxIdleConnsPerHost: maxIdleConnections,
			IdleConnTimeout:     idleTimeout,
			DisableCompression:  true,
		},
		// A redirect could send the job to a server that the user did not choose.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (f *forwarder) handle(ctx context.Context, job *worker.Job) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.target, bytes.NewReader(job.Payload))
	if err != nil {
		return err
	}
	setJobHeaders(request.Header, job)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	f.running.Add(1)
	defer f.running.Add(-1)
	response, err := f.client.Do(request)
	if err != nil && ctx.Err() == nil {
		f.isSuspect.Store(true)
	}
	if dialError := (*net.OpError)(nil); errors.As(err, &dialError) && dialError.Op == "dial" {
		// No connection was made: the server has not seen the job, so this is not an attempt.
		return fmt.Errorf("%w: %w", err, worker.Snooze(unreachableDelay))
	}
	if err != nil && ctx.Err() == nil && isConnectionLost(err) {
		return worker.ProcessLost(fmt.Errorf("the server closed the connection without a response: %w", err))
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes))
	if err != nil && response.StatusCode/100 != 2 {
		return fmt.Errorf("reading the response, %s: %w", response.Status, err)
	}
	return classifyResponse(response, string(body[:min(len(body), errorBodyBytes)]), time.Now())
}

// isConnectionLost reports whether the server ended the connection. It may have crashed, and with it all requests that it had.
func isConnectionLost(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}, func(lost error) bool { return errors.Is(err, lost) })
}

// available returns an error if the server accepts no connection. While a request runs, it connects only if the server is suspect: a server
// that runs one request at a time does not accept others meanwhile, and its queue of connections is short.
func (f *forwarder) available(ctx context.Context) error {
	if f.running.Load() > 0 && !f.isSuspect.Load() {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return fmt.Errorf("the server accepts no connection: %w", err)
	}
	f.isSuspect.Store(false)
	return conn.Close()
}

// setJobHeaders sets the headers that describe the job. Producer headers that are invalid in HTTP are dropped.
func setJobHeaders(header http.Header, job *worker.Job) {
	header.Set("Content-Type", "application/octet-stream")
	for name, values := range job.Headers {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				continue
			}
			header.Add(producerHeaderPrefix+name, value)
			if strings.EqualFold(name, "Content-Type") {
				header.Set("Content-Type", value)
			}
		}
	}
	header.Set(headerJobID, job.ID)
	if kind := kindOf(job); kind != "" {
		header.Set(headerKind, kind)
	}
	header.Set(headerQueue, job.Queue)
	header.Set(headerPriority, job.Priority)
	header.Set(headerAttempt, strconv.Itoa(job.Attempt))
	header.Set(headerMaxAttempts, strconv.Itoa(job.MaxAttempts))
	header.Set(headerSentTime, job.SentTime.UTC().Format(time.RFC3339Nano))
}

// kindOf returns the kind of a job; empty if the kind is no valid identifier for headers and environment variables.
func kindOf(job *worker.Job) string {
	if broker.IsIdentifier(job.Kind) {
		return job.Kind
	}
	return ""
}

func classifyResponse(response *http.Response, body string, now time.Time) error {
	status := response.StatusCode
	reason := strings.TrimSpace("the server responded " + response.Status + " " + body)
	switch {
	case status/100 == 2:
		return nil
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		if after, found := parseRetryAfter(response.Header.Get("Retry-After"), now); found {
			return fmt.Errorf("%s: %w", reason, worker.Retry(after))
		}
		return errors.New(reason)
	case status/100 == 4:
		return worker.DeadLetter(reason)
	default:
		return errors.New(reason)
	}
}

// parseRetryAfter parses a Retry-After header, which contains seconds or a date.
func parseRetryAfter(text string, now time.Time) (after time.Duration, found bool) {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter), true
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(date.Sub(now), 0), maxRetryAfter), true
}
