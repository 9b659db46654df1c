package broker

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestHandlersSeeTheTimeoutAndTheKindOfAllHeadersWithThePrefix(t *testing.T) {
	for name, want := range map[string]bool{
		"Tenant": true, "Yardmaster-Timeout": true, "yardmaster-timeout": true, "Yardmaster-Kind": true, "yardmaster-job-id": false,
		"Yardmaster-Error": false, "YARDMASTER-ERROR": false, "Yardmaster-": false, "Yardmaster-Timeout-": false,
	} {
		require.True(t, IsProducerHeader(name) == want, "IsProducerHeader(%q) is not %t", name, want)
	}
}

func TestTimeoutOfAMessageIsThatOfItsHeaderElseOfItsQueue(t *testing.T) {
	q := QueueConfig{JobTimeout: time.Minute}
	for title, test := range map[string]struct {
		headers map[string][]string
		want    time.Duration
		isError bool
	}{
		"no headers":             {nil, time.Minute, false},
		"a header without value": {map[string][]string{TimeoutHeader: {}}, time.Minute, false},
		"a header":               {map[string][]string{TimeoutHeader: {"90s"}}, 90 * time.Second, false},
		"another spelling":       {map[string][]string{"yardmaster-timeout": {"90s"}}, 90 * time.Second, false},
		"a number":               {map[string][]string{TimeoutHeader: {"90"}}, 0, true},
		"more than a day":        {map[string][]string{TimeoutHeader: {"24h1s"}}, 0, true},
	} {
		t.Run(title, func(t *testing.T) {
			got, err := q.TimeoutOf(test.headers)
			require.True(t, got == test.want && (err != nil) == test.isError, "timeout %s and error %v, want %s", got, err, test.want)
		})
	}
}
