// Package workerclient is a client for the admin API of workers.
//
// Workers are programs of the user: they may hang, return anything, or redirect requests.
// Therefore each request has a timeout and each response a size limit, and redirects are not
// followed. The stats are what the worker claims; whether a message is done is decided by the
// broker.
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
	// requestTimeout bounds each request. The admin API does nothing that takes time.
	requestTimeout = time.Second
	// maxResponseBytes bounds the header and the body of a response. The longest response is that
	// of a worker with 16 queues.
	maxResponseBytes = 1 << 14
	// maxConcurrentRequests bounds the requests of one Client to all workers.
	maxConcurrentRequests = 512
	// MaxConcurrentRequestsPerPool is how many workers of a pool should be asked at the same time.
	// If ten pools are, they cannot take all slots, and no pool waits for workers of others.
	MaxConcurrentRequestsPerPool = 32
	// maxJobs bounds a number of jobs in a worker, and maxAttempts the attempts since it started.
	// No worker can reach them, and their sum over all workers of a pool does not overflow.
	maxJobs, maxAttempts = 1 << 24, 1 << 48
	// idleConnectionTimeout is longer than the interval at which the operator requests stats,
	// so that connections are reused.
	idleConnectionTimeout = 10 * time.Second
)

// States of a worker in its stats.
const (
	stateDraining = "Draining"
	stateDrained  = "Drained"
)

// Stats are the stats that a worker reports.
type Stats struct {
	// State is Running, Draining, Drained, or a state that only the worker knows.
	State string `json:"state"`
	// Attached is true if the worker takes messages from each of its queues; nil if it does not
	// report that.
	Attached *bool `json:"attached,omitempty"`
	// Queues that the worker takes messages from; nil if it does not report them.
	Queues []struct{} `json:"queues,omitempty"`
	// InFlight is the number of running jobs.
	InFlight int64 `json:"inFlight"`
	// Prefetched is the number of prefetched messages; 0 if the worker does not report it.
	Prefetched int64 `json:"prefetched"`
	// Succeeded and Failed are the numbers of attempts since the worker started; nil if the
	// worker does not report them.
	Succeeded *int64 `json:"succeeded,omitempty"`
	Failed    *int64 `json:"failed,omitempty"`
	// Recent attempts; nil if the worker does not report them.
	Recent *RecentAttempts `json:"recent,omitempty"`
}

// RecentAttempts are the attempts that ended in the last minutes, decaying with a time constant of two
// minutes: their number, the time that they took together, and the number of those whose message returned to
// its queue.
type RecentAttempts struct {
	Count    float64 `json:"count"`
	Seconds  float64 `json:"seconds"`
	Returned float64 `json:"returned"`
}

// IsAttached reports whether the worker takes messages from each of its queues; nil if that is
// unknown. Workers with a runtime of an earlier version report only the queues that they found.
func (s *Stats) IsAttached(queues int) *bool {
	if s.Attached == nil && s.Queues != nil {
		return new(len(s.Queues) >= queues)
	}
	return s.Attached
}

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

// FetchStats returns the stats of the worker at the address, host:port. Stats that are impossible,
// such as negative numbers, are an error.
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

// Drain makes the worker at the address stop taking messages. The token proves to it that the
// request is from the operator; workers with a runtime of an earlier version need none.
func (c *Client) Drain(ctx context.Context, address, token string) error {
	_, err := c.sendRequest(ctx, http.MethodPost, address, "/drain", authorization, bearer+token)
	return err
}

// Stop makes the worker at the address drain and end its process, as its preStop hook does. The secret is that of the
// hook. The response arrives once the worker is drained: an error because it takes longer does not mean that it continues.
func (c *Client) Stop(ctx context.Context, address, secret string) error {
	_, err := c.sendRequest(ctx, http.MethodGet, address, "/prestop", adminauth.PreStopHeader, secret)
	return err
}

// Resume makes the worker at the address take messages again, with a token as for Drain.
func (c *Client) Resume(ctx context.Context, address, token string) error {
	_, err := c.sendRequest(ctx, http.MethodPost, address, "/resume", authorization, bearer+token)
	return err
}

// authorization is the header with the token of a request, and bearer is before it.
const (
	authorization = "Authorization"
	bearer        = "Bearer "
)

// sendRequest waits for one of the client's slots, and returns the body of the response. A header proves that the request
// is from the operator, unless it has only an empty proof.
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
