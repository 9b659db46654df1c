package kube

import "net/http"

// IgnoreRetryAfter is a transport that does not hear an API server which is not available say when
// to come again. One that has just started says five seconds to whoever asks for a kind that
// it does not serve yet, as those of CustomResourceDefinitions are for a moment; and client-go
// waits for as long, in the midst of a request, where no wait of ours counts. Without that
// word the request fails, and whoever made it tries again as after any other failure.
//
// One that has too much to do says so with another code, and is heard.
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

// WrappedRoundTripper lets client-go find the transport beneath.
func (i retryAfterIgnorer) WrappedRoundTripper() http.RoundTripper { return i.next }
