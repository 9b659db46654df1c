package kube

import "net/http"

// IgnoreRetryAfter returns a transport that drops Retry-After from 503 responses, so that client-go does not sleep inside a
// request. An API server that has just started sends Retry-After: 5 for kinds that it does not serve yet, such as kinds of
// CustomResourceDefinitions. Without the header the request fails at once and is retried with the caller's own backoff.
//
// An overloaded API server sends 429, whose Retry-After is kept.
func IgnoreRetryAfter(next http.RoundTripper) http.RoundTripper { return retryAfterIgnorer{next} }

type retryAfterIgnorer struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i retryAfterIgnorer) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := i.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusServiceUnavailable {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (i retryAfterIgnorer) WrappedRoundTripper() http.RoundTripper { return i.next }
