package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAnIdentifierIsShortTextWithoutControlCharacters(t *testing.T) {
	for id, want := range map[string]bool{
		"order-5": true, "a b/ü": true, strings.Repeat("x", maxIdentifierBytes): true,
		"": false, strings.Repeat("x", maxIdentifierBytes+1): false, "a\nb": false, "a\x00": false, "\xff": false,
	} {
		require.True(t, IsIdentifier(id) == want, "IsIdentifier(%q) is not %t", id, want)
	}
}

func TestAHeaderIsFoundInAnySpelling(t *testing.T) {
	for title, test := range map[string]struct {
		headers map[string][]string
		want    string
	}{
		"no headers":             {nil, ""},
		"without a value":        {map[string][]string{KindHeader: {}}, ""},
		"the exact spelling":     {map[string][]string{"YARDMASTER-KIND": {"a"}, KindHeader: {"b", "c"}}, "b"},
		"another spelling":       {map[string][]string{"yardmaster-kind": {"a"}}, "a"},
		"two spellings: by name": {map[string][]string{"yardmaster-kind": {"a"}, "YARDMASTER-KIND": {"b"}}, "b"},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, HeaderValue(test.headers, KindHeader))
		})
	}
}

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
