package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestRetryAfterIsDroppedFromUnavailableResponsesOnly(t *testing.T) {
	for title, test := range map[string]struct {
		code int
		want string
	}{
		"kind is not served yet": {http.StatusServiceUnavailable, ""},
		"too many requests":      {http.StatusTooManyRequests, "5"},
		"internal error":         {http.StatusInternalServerError, "5"},
	} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "5")
				w.WriteHeader(test.code)
			}))
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			response, err := IgnoreRetryAfter(http.DefaultTransport).RoundTrip(request)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, test.want, response.Header.Get("Retry-After"))
		})
	}
}
