package backlog

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
)

const (
	// httpTimeout bounds a request, including the response body.
	httpTimeout    = 5 * time.Second
	maxHeaderBytes = 64 << 10
)

// API describes the responses that an HTTPClient expects from a server.
type API struct {
	// MaxResponse is the maximum length of a response, in bytes.
	MaxResponse int64
	// IsField reports whether the servers of this API, and few others, have a field with this value in their responses, which are JSON
	// objects.
	IsField func(name string, value json.RawMessage) bool
}

// isAnswer reports whether the body, which may be incomplete, is a response of the API.
func (a *API) isAnswer(body []byte) bool {
	document := json.NewDecoder(bytes.NewReader(body))
	if start, err := document.Token(); err != nil || start != json.Delim('{') {
		return false
	}
	for document.More() {
		var value json.RawMessage
		name, err := document.Token()
		if err != nil || document.Decode(&value) != nil {
			return false
		}
		if text, isText := name.(string); isText && a.IsField(text, value) {
			return true
		}
	}
	return false
}

// HTTPClient sends requests to a source with an HTTP API. It bounds the time and the size of each response. It does not follow
// redirects, which would send the credentials to another server, and uses no proxy, which would connect to denied addresses.
type HTTPClient struct {
	*http.Client
	// BaseURL contains no credentials and no query.
	BaseURL     *url.URL
	credentials *broker.Credentials
}

// NewHTTPClient returns a client that connects with the first request.
func NewHTTPClient(credentials broker.Credentials, served API) (*HTTPClient, error) {
	parsed, err := broker.ParseURL(credentials.URL, "http", "https")
	if err != nil {
		return nil, err
	}
	tls, err := credentials.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	header := http.Header{"Accept": {"application/json"}}
	username, password := credentials.UserOf(parsed)
	switch {
	case credentials.Token != "":
		header.Set("Authorization", "Bearer "+credentials.Token)
	case username != "":
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(username+":"+password)))
	}
	if credentials.Name != "" {
		header.Set("User-Agent", credentials.Name)
	}
	return &HTTPClient{
		Client: &http.Client{Timeout: httpTimeout, Transport: &httpTransport{
			Transport: &http.Transport{
				DialContext: credentials.Dial, TLSClientConfig: tls, MaxResponseHeaderBytes: maxHeaderBytes,
				MaxIdleConns: 2, IdleConnTimeout: time.Minute,
			},
			api: served, header: header, credentials: &credentials,
		}},
		BaseURL:     &url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path, RawPath: parsed.RawPath},
		credentials: &credentials,
	}, nil
}

// Conceal removes secrets from an error of a server that has answered.
func (c *HTTPClient) Conceal(err error) error { return c.credentials.Conceal(err, true) }

// httpTransport adds the header to requests, reads responses within their bounds, and returns an error for a status that concerns the
// client or the server rather than the request.
type httpTransport struct {
	*http.Transport
	api         API
	header      http.Header
	credentials *broker.Credentials
}

// RoundTrip implements http.RoundTripper.
func (t *httpTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	maps.Copy(request.Header, t.header)
	response, err := t.Transport.RoundTrip(request)
	if err != nil {
		return nil, t.credentials.Conceal(err, false)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, t.api.MaxResponse))
	_ = response.Body.Close()
	if errors.As(err, new(*http.MaxBytesError)) {
		bounded.CountClosed(bounded.BudgetBytes)
	}
	isAnswer := !t.credentials.ConcealCauses || t.api.isAnswer(body)
	switch failure := statusError(response.StatusCode); {
	case failure != nil:
		err = failure
	case err == nil && !isAnswer:
		err = broker.ErrUnreachable
	}
	if err != nil {
		return nil, t.credentials.Conceal(err, isAnswer)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

func statusError(status int) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return broker.Errorf(broker.ClassUnauthorized, "the response is %d %s", status, http.StatusText(status))
	case status >= 300 && status < 400:
		return broker.Errorf(broker.ClassInvalid, "the response is %d %s: use the URL that it redirects to", status, http.StatusText(status))
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable:
		return broker.Errorf(broker.ClassUnreachable, "the response is %d %s", status, http.StatusText(status))
	}
	return nil
}

// GetJSON requests an escaped path below the base URL, and decodes the response with any status.
func (c *HTTPClient) GetJSON(ctx context.Context, escapedPath string, into any) (status int, err error) {
	const operation = "GET"
	target, err := url.Parse(c.BaseURL.JoinPath("/").String() + escapedPath)
	if err != nil {
		return 0, broker.Errorf(broker.ClassInvalid, "url is not a valid URL")
	}
	request := (&http.Request{Method: http.MethodGet, URL: target, Header: http.Header{}}).WithContext(ctx)
	response, err := c.Do(request)
	if err != nil {
		return 0, ClassifyHTTPError(operation, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, ClassifyHTTPError(operation, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		class := broker.ClassInvalid
		if response.StatusCode == http.StatusServiceUnavailable {
			class = broker.ClassUnreachable // the backend of a proxy is down
		}
		return response.StatusCode, broker.Errorf(class, "the response is %d %s, and is not JSON",
			response.StatusCode, http.StatusText(response.StatusCode))
	}
	return response.StatusCode, nil
}

// ClassifyHTTPError adds the operation and a class to an error of an HTTPClient.
func ClassifyHTTPError(operation string, err error) error {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return broker.Errorf(broker.ClassInvalid, "%s: the response is longer than %d bytes", operation, tooLarge.Limit)
	}
	return broker.ClassifyNetworkError(operation, err)
}

// Disconnect closes idle connections.
func (c *HTTPClient) Disconnect() { c.CloseIdleConnections() }
