// Package admin asks workers, at their admin API, what they are doing, and to drain or to
// go on.
//
// A worker is somebody else's program. It may hang, answer with anything or at any length,
// or send us elsewhere; so each request has a time limit, each answer a size limit, and no
// redirect is followed. What it says is its word and no more: whether a message is really
// done the broker knows.
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
)

const (
	// patience is how long a worker may take to answer. Its API does nothing that takes time.
	patience = time.Second
	// longest answer that is read.
	longest = 1 << 16
	// atOnce is how many workers are asked at a time.
	atOnce = 128
	// kept connections live for longer than the time between two looks.
	kept = 10 * time.Second
)

// States of a worker, as it says them.
const (
	stateDraining = "Draining"
	stateDrained  = "Drained"
)

// Stats are what a worker says of itself.
type Stats struct {
	State    string `json:"state"`
	InFlight int64  `json:"inFlight"`
	// Held messages it has fetched in advance; 0 if it does not say.
	Held int64 `json:"held"`
	// Succeeded and Failed messages since it started; nil if it does not count them.
	Succeeded *int64 `json:"succeeded,omitempty"`
	Failed    *int64 `json:"failed,omitempty"`
}

// Draining tells whether the worker takes no more messages.
func (s *Stats) Draining() bool { return s.State == stateDraining || s.State == stateDrained }

// Drained tells whether it has none in flight either.
func (s *Stats) Drained() bool { return s.State == stateDrained && s.InFlight == 0 }

// Client asks workers. All its methods may be called at the same time.
type Client struct {
	http  *http.Client
	slots chan struct{}
}

// New returns a Client.
func New() *Client {
	return &Client{
		http: &http.Client{
			Timeout: patience,
			Transport: &http.Transport{
				// Workers are asked where they are, whatever proxy the operator has.
				Proxy:                  nil,
				DialContext:            (&net.Dialer{Timeout: patience}).DialContext,
				MaxIdleConns:           2 * atOnce,
				MaxIdleConnsPerHost:    1,
				IdleConnTimeout:        kept,
				MaxResponseHeaderBytes: longest,
				DisableCompression:     true, // a short answer could become a long one
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots: make(chan struct{}, atOnce),
	}
}

// Stats asks the worker at the address, host:port, what it is doing.
func (c *Client) Stats(ctx context.Context, address string) (*Stats, error) {
	raw, err := c.ask(ctx, http.MethodGet, address, "/stats")
	if err != nil {
		return nil, err
	}
	s := &Stats{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("what %s says of itself: %w", address, err)
	}
	if s.State == "" || s.InFlight < 0 || s.Held < 0 {
		return nil, fmt.Errorf("what %s says of itself cannot be: state %q, %d in flight, %d held", address, s.State, s.InFlight, s.Held)
	}
	return s, nil
}

// Drain asks the worker to take no more messages.
func (c *Client) Drain(ctx context.Context, address string) error {
	_, err := c.ask(ctx, http.MethodPost, address, "/drain")
	return err
}

// Resume asks the worker to take messages again.
func (c *Client) Resume(ctx context.Context, address string) error {
	_, err := c.ask(ctx, http.MethodPost, address, "/resume")
	return err
}

// ask makes one request, when there is a slot for it.
func (c *Client) ask(ctx context.Context, method, address, path string) (answer []byte, err error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	answer, err = io.ReadAll(io.LimitReader(response.Body, longest+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > longest:
		return nil, fmt.Errorf("%s %s%s: the answer is longer than %d bytes", method, address, path, longest)
	case response.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s %s%s: %s", method, address, path, response.Status)
	}
	return answer, nil
}
