package broker

import (
	"strings"
	"testing"

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
