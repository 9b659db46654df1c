package backlog

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// httpTimeout is how long an answer is waited for, all of it.
	httpTimeout = 5 * time.Second
	// maxAnswer is far more than an answer about one number has.
	maxAnswer = 1 << 20
)

// HTTP asks a place that speaks HTTP and JSON.
type HTTP struct {
	base   *url.URL
	access broker.Credentials
	client *http.Client
}

// NewHTTP connects to nothing yet.
func NewHTTP(access broker.Credentials) (*HTTP, error) {
	base, err := broker.ParseURL(access.URL, "http", "https")
	if err != nil {
		return nil, err
	}
	config, err := access.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	return &HTTP{base: base, access: access, client: &http.Client{
		Timeout:   httpTimeout,
		Transport: &http.Transport{TLSClientConfig: config, MaxIdleConns: 2, IdleConnTimeout: time.Minute, Proxy: http.ProxyFromEnvironment},
		// Elsewhere is not where the credentials are meant to go.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Get asks for a path under the URL's own, whose parts are escaped already, and reads the
// answer's JSON, whatever its status.
func (h *HTTP) Get(ctx context.Context, path string, query url.Values, answer any) (status int, err error) {
	target := strings.TrimSuffix(h.base.Scheme+"://"+h.base.Host+h.base.EscapedPath(), "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return 0, broker.Errorf(broker.ClassInvalid, "url is not one")
	}
	h.authorise(request)
	response, err := h.client.Do(request)
	if err != nil {
		return 0, broker.ClassifyNetworkError("asking", err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, broker.ClassifyNetworkError("reading the answer", err)
	}
	if err := statusError(response.StatusCode); err != nil {
		return response.StatusCode, err
	}
	if len(raw) > maxAnswer {
		return response.StatusCode, broker.Errorf(broker.ClassInvalid, "the answer is longer than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return response.StatusCode, notJSON(response.StatusCode)
	}
	return response.StatusCode, nil
}

func (h *HTTP) authorise(request *http.Request) {
	name, password := h.access.UserOf(h.base)
	switch {
	case h.access.Token != "":
		request.Header.Set("Authorization", "Bearer "+h.access.Token)
	case name != "":
		request.SetBasicAuth(name, password)
	}
	request.Header.Set("Accept", "application/json")
	if h.access.Name != "" {
		request.Header.Set("User-Agent", h.access.Name)
	}
}

// statusError is what an answer's status says about who asked, and about the place. What
// the place says of the question itself stands in the answer.
func statusError(status int) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return broker.Errorf(broker.ClassUnauthorized, "the answer is %d %s", status, http.StatusText(status))
	case status >= 300 && status < 400:
		return broker.Errorf(broker.ClassInvalid, "the answer is %d %s: give the URL that it leads to", status, http.StatusText(status))
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable:
		return broker.Errorf(broker.ClassUnreachable, "the answer is %d %s", status, http.StatusText(status))
	}
	return nil
}

// notJSON is an answer of somebody else: a proxy's, if the place behind it is not there.
func notJSON(status int) error {
	class := broker.ClassInvalid
	if status == http.StatusServiceUnavailable {
		class = broker.ClassUnreachable
	}
	return broker.Errorf(class, "the answer is %d %s, and not the JSON that was asked for", status, http.StatusText(status))
}

// Disconnect ends the connections.
func (h *HTTP) Disconnect() { h.client.CloseIdleConnections() }
