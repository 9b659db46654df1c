package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// jobParameters are the properties of a job other than its payload and headers, as texts. They are query parameters of a request with
// one job, and fields of each line of a request with many jobs.
type jobParameters struct {
	ID             *string `json:"id"`
	Priority       string  `json:"priority"`
	Kind           string  `json:"kind"`
	Delay          string  `json:"delay"`
	At             string  `json:"at"`
	Timeout        string  `json:"timeout"`
	DeduplicateFor string  `json:"deduplicateFor"`
	Unique         *string `json:"unique"`
	UniqueFor      string  `json:"uniqueFor"`
}

// headerPrefix begins the names of request headers that become headers of the job.
const headerPrefix = "Job-Header-"

// passedHeaders are request headers that become headers of the job with the same name, which producers in Go use too.
var passedHeaders = []string{"Content-Type", "traceparent", "tracestate"}

func parseQuery(query url.Values) (jobParameters, error) {
	var p jobParameters
	fields := map[string]*string{
		"priority": &p.Priority, "kind": &p.Kind, "delay": &p.Delay, "at": &p.At, "timeout": &p.Timeout, "deduplicateFor": &p.DeduplicateFor,
		"uniqueFor": &p.UniqueFor,
	}
	for name, values := range query {
		field := fields[name]
		switch name {
		case "id":
			p.ID = new(string)
			field = p.ID
		case "unique":
			p.Unique = new(string)
			field = p.Unique
		}
		switch {
		case field == nil:
			return p, invalid(shorten(name), "is not a parameter: use id, priority, kind, delay, at, timeout, deduplicateFor, unique or uniqueFor")
		case len(values) != 1:
			return p, invalid(name, "is set more than once")
		}
		*field = values[0]
	}
	return p, nil
}

func parseHeaders(given http.Header) map[string][]string {
	headers := map[string][]string{}
	for name, values := range given {
		if rest, found := strings.CutPrefix(name, headerPrefix); found {
			headers[rest] = values
		}
	}
	for _, name := range passedHeaders {
		if values := given.Values(name); len(values) > 0 {
			headers[name] = values
		}
	}
	return headers
}

// newJob returns a valid job for a queue of the broker.
func newJob(queue string, p jobParameters, headers map[string][]string, payload []byte, now time.Time) (*broker.OutgoingJob, error) {
	job := &broker.OutgoingJob{Queue: queue, Payload: payload, Headers: headers, Priority: p.Priority, Kind: p.Kind}
	if p.ID != nil {
		job.ID, job.HasChosenID = *p.ID, true
	}
	if p.Unique != nil {
		job.IsUnique, job.UniqueKey = true, *p.Unique
	}
	job.IsUniqueFor = p.UniqueFor != ""
	if job.IsUniqueFor && !job.IsUnique {
		return nil, broker.InvalidField("uniqueFor", "requires unique")
	}
	var delay time.Duration
	for _, duration := range []struct {
		name, text string
		value      *time.Duration
	}{
		{"delay", p.Delay, &delay},
		{"timeout", p.Timeout, &job.Timeout},
		{"deduplicateFor", p.DeduplicateFor, &job.DeduplicateFor},
		{"uniqueFor", p.UniqueFor, &job.UniqueFor},
	} {
		if duration.text == "" {
			continue
		}
		value, err := time.ParseDuration(duration.text)
		if err != nil {
			return nil, broker.InvalidField(duration.name, "is %q, must be a duration such as 90s or 1h30m", shorten(duration.text))
		}
		*duration.value = value
	}
	switch {
	case delay < 0:
		return nil, broker.InvalidField("delay", "is %s, must not be negative", delay)
	case p.At != "" && p.Delay != "":
		return nil, broker.InvalidField("at", "cannot be set together with delay")
	case p.At != "":
		due, err := time.Parse(time.RFC3339, p.At)
		if err != nil {
			return nil, broker.InvalidField("at", "is %q, must be a time such as 2026-01-31T08:00:00Z", shorten(p.At))
		}
		job.DueTime = due
	case delay > 0:
		job.DueTime = now.Add(delay)
	}
	return job, job.Validate()
}

type jobLine struct {
	jobParameters

	// Payload is any JSON value; PayloadBase64 is bytes. A line has exactly one of them.
	Payload       json.RawMessage   `json:"payload"`
	PayloadBase64 *[]byte           `json:"payloadBase64"`
	Headers       map[string]string `json:"headers"`
}

const maxJobs = 1000

// parseLines reads the jobs of a request, one JSON object a line. If one job is invalid, all jobs are refused.
func parseLines(body io.Reader, queue string, now time.Time) ([]*broker.OutgoingJob, error) {
	lines := json.NewDecoder(body)
	lines.DisallowUnknownFields()
	var jobs []*broker.OutgoingJob
	for {
		var line jobLine
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		field := fmt.Sprintf("jobs[%d]", len(jobs))
		switch {
		case errors.As(err, new(*http.MaxBytesError)):
			return nil, err
		case err != nil:
			return nil, invalid(field, "is not a valid JSON object of a job: "+shorten(err.Error()))
		case len(jobs) == maxJobs:
			return nil, fail(http.StatusRequestEntityTooLarge, reasonTooLarge, fmt.Sprintf("the request has more than %d jobs", maxJobs))
		}
		job, err := line.job(queue, now)
		if sending := (*broker.SendError)(nil); errors.As(err, &sending) {
			return nil, broker.InvalidField(field+"."+sending.Field, "%w", sending.Err)
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	if len(jobs) == 0 {
		return nil, invalid("jobs", "are missing: send a JSON object for each, one a line")
	}
	return jobs, nil
}

// contentType is the header with the media type of a payload.
const contentType = "Content-Type"

func (l *jobLine) job(queue string, now time.Time) (*broker.OutgoingJob, error) {
	headers := map[string][]string{}
	for name, value := range l.Headers {
		headers[name] = []string{value}
	}
	var payload []byte
	switch {
	case (l.Payload == nil) == (l.PayloadBase64 == nil):
		return nil, broker.InvalidField("payload", "or payloadBase64 is required, and not both")
	case l.PayloadBase64 != nil:
		payload = *l.PayloadBase64
	default:
		payload = slices.Clone(bytes.TrimSpace(l.Payload))
		if _, isSet := headers[contentType]; !isSet {
			headers[contentType] = []string{"application/json"}
		}
	}
	return newJob(queue, l.jobParameters, headers, payload, now)
}

// shorten limits a client's text in a response.
func shorten(text string) string {
	const most = 100
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}
