// Package workerclient is a client for the admin API of workers.
//
// Workers are programs of the user: they may hang, return anything, or redirect requests. Therefore each request has a timeout and
// each response a size limit, and redirects are not followed. The stats are only the worker's claim; the broker decides whether a
// message is done.
package workerclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

const (
	// requestTimeout bounds each request. No request of the admin API takes long.
	requestTimeout = time.Second
	// maxResponseBytes bounds the header and the body of a response. The longest response is the stats of a worker with 16 queues.
	maxResponseBytes = 1 << 14
	// maxConcurrentRequests bounds the requests of one Client to all workers.
	maxConcurrentRequests = 512
	// MaxConcurrentRequestsPerPool is the number of a pool's workers that should be asked at the same time. Even ten pools then leave
	// slots free, so that no pool waits for workers of others.
	MaxConcurrentRequestsPerPool = 32
	// maxJobs bounds a number of jobs in a worker, and maxAttempts the attempts since it started. No worker reaches them, and their
	// sum over all workers of a pool does not overflow.
	maxJobs, maxAttempts = 1 << 24, 1 << 48
	// idleConnectionTimeout is longer than the interval at which the operator requests stats, so that connections are reused.
	idleConnectionTimeout = 10 * time.Second
)

// States of a worker in its stats.
const (
	stateDraining = "Draining"
	stateDrained  = "Drained"
)

// Stats are the stats that a worker reports.
type Stats struct {
	// State is Running, Draining, Drained, or a state of the worker's own.
	State string `json:"state"`
	// Attached is true if the worker takes messages from each of its queues; nil if not reported.
	Attached *bool `json:"attached,omitempty"`
	// Queues from which the worker takes messages; nil if not reported.
	Queues []struct{} `json:"queues,omitempty"`
	// InFlight is the number of running jobs.
	InFlight int64 `json:"inFlight"`
	// Prefetched is the number of prefetched messages; 0 if not reported.
	Prefetched int64 `json:"prefetched"`
	// Succeeded and Failed are the numbers of attempts since the worker started; nil if not reported.
	Succeeded *int64 `json:"succeeded,omitempty"`
	Failed    *int64 `json:"failed,omitempty"`
	// Snoozed is the number of jobs that the handler gave back since the start; nil if not reported.
	Snoozed *int64 `json:"snoozed,omitempty"`
	// Returned is the number of messages that the worker gave back and that are due within a minute; 0 if not reported.
	Returned int64 `json:"returned"`
	// Unavailable is why the handler cannot run jobs; empty if it can, or if not reported.
	Unavailable string `json:"unavailable,omitempty"`
	// Breaker is the worst state among the circuit breakers; empty if not reported.
	Breaker string `json:"breaker,omitempty"`
	// Recent attempts; nil if not reported.
	Recent *RecentAttempts `json:"recent,omitempty"`
}

// RecentAttempts are the attempts that ended in the last minutes, decaying with a time constant of two minutes: their number, their
// total duration, and the number of attempts whose message returned to its queue.
type RecentAttempts struct {
	Count    float64 `json:"count"`
	Seconds  float64 `json:"seconds"`
	Returned float64 `json:"returned"`
}

// IsAttached reports whether the worker takes messages from each of its queues; nil if unknown. Workers with a runtime of an earlier
// version report only the queues that they found.
func (s *Stats) IsAttached(queues int) *bool {
	if s.Attached == nil && s.Queues != nil {
		return new(len(s.Queues) >= queues)
	}
	return s.Attached
}

// IsBreakerOpen reports whether the worker takes no or few messages of a queue because most of them fail.
func (s *Stats) IsBreakerOpen() bool { return s.Breaker == "Open" || s.Breaker == "HalfOpen" }

// IsDraining reports whether the worker takes no messages.
func (s *Stats) IsDraining() bool { return s.State == stateDraining || s.State == stateDrained }

// IsDrained reports whether the worker takes no messages and runs none.
func (s *Stats) IsDrained() bool { return s.State == stateDrained && s.InFlight == 0 }

// Client sends requests to workers. It is safe for concurrent use.
type Client struct {
	http         *http.Client
	requestSlots chan struct{}
}

// New returns a Client.
func New() *Client {
	return &Client{
		http: &http.Client{
			Timeout: requestTimeout,
			Transport: &http.Transport{
				// Workers are in the cluster; a proxy of the operator does not apply to them.
				Proxy:                  nil,
				DialContext:            (&net.Dialer{Timeout: requestTimeout}).DialContext,
				MaxIdleConns:           2 * maxConcurrentRequests,
				MaxIdleConnsPerHost:    1,
				IdleConnTimeout:        idleConnectionTimeout,
				MaxResponseHeaderBytes: maxResponseBytes,
				DisableCompression:     true, // a short response could expand to any size
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		requestSlots: make(chan struct{}, maxConcurrentRequests),
	}
}

// FetchStats returns the stats of the worker at the address, host:port. Impossible stats, such as negative numbers, are an error.
func (c *Client) FetchStats(ctx context.Context, address string) (*Stats, error) {
	body, err := c.sendRequest(ctx, http.MethodGet, address, "/stats", "", "")
	if err != nil {
		return nil, err
	}
	s := &Stats{}
	if err := json.Unmarshal(body, s); err != nil {
		return nil, fmt.Errorf("parsing the stats of worker %s: %w", address, err)
	}
	if s.State == "" {
		return nil, fmt.Errorf("worker %s reports no state", address)
	}
	for _, number := range []struct {
		what             string
		reported, atMost int64
	}{
		{"inFlight", s.InFlight, maxJobs},
		{"prefetched", s.Prefetched, maxJobs},
		{"succeeded", ptr.Deref(s.Succeeded, 0), maxAttempts},
		{"failed", ptr.Deref(s.Failed, 0), maxAttempts},
		{"snoozed", ptr.Deref(s.Snoozed, 0), maxAttempts},
		{"returned", s.Returned, maxJobs},
	} {
		if number.reported < 0 || number.reported > number.atMost {
			return nil, fmt.Errorf("worker %s reports an impossible number: %s is %d", address, number.what, number.reported)
		}
	}
	if r := s.Recent; r != nil && (r.Count < 0 || r.Count > maxAttempts || r.Returned < 0 || r.Returned > r.Count || r.Seconds < 0) {
		return nil, fmt.Errorf("worker %s reports impossible recent attempts: %+v", address, *r)
	}
	return s, nil
}

// Drain makes the worker at the address stop taking messages. The token proves that the request is from the operator; workers with a
// runtime of an earlier version need no token.
func (c *Client) Drain(ctx context.Context, address, token string) error {
	_, err := c.sendRequest(ctx, http.MethodPost, address, "/drain", authorization, bearer+token)
	return err
}

// Stop makes the worker at the address drain and end its process, as its preStop hook does, with the secret of the hook. The response
// arrives once the worker is drained: a worker that takes longer than the timeout drains nevertheless.
func (c *Client) Stop(ctx context.Context, address, secret string) error {
	_, err := c.sendRequest(ctx, http.MethodGet, address, "/prestop", adminauth.PreStopHeader, secret)
	return err
}

// Resume makes the worker at the address take messages again, with a token as for Drain.
func (c *Client) Resume(ctx context.Context, address, token string) error {
	_, err := c.sendRequest(ctx, http.MethodPost, address, "/resume", authorization, bearer+token)
	return err
}

// authorization is the header with the token of a request, and bearer its prefix.
const (
	authorization = "Authorization"
	bearer        = "Bearer "
)

// sendRequest waits for a slot of the client, and returns the body of the response. The header proves that the request is from the
// operator; an empty proof is not sent.
func (c *Client) sendRequest(ctx context.Context, method, address, path, header, proof string) (body []byte, err error) {
	select {
	case c.requestSlots <- struct{}{}:
		defer func() { <-c.requestSlots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if proof != "" && proof != bearer {
		request.Header.Set(header, proof)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxResponseBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxResponseBytes:
		return nil, fmt.Errorf("%s %s%s: the response is longer than %d bytes", method, address, path, maxResponseBytes)
	case response.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s %s%s: %s", method, address, path, response.Status)
	}
	return body, nil
}
