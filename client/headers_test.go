package client

import (
	"errors"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/test/require"
)

// Every text that the client accepts must arrive, and none may become another header or another field of the message.
func TestEachHeaderKindAndIDThatTheClientAcceptsArrivesUnchanged(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		random := rand.New(rand.NewPCG(1, 2))
		next := env.consume("default")
		accepted := 0
		for range 3000 {
			name, value, kind, id := randomText(random), randomText(random), randomText(random), randomText(random)
			receipt, err := env.Enqueue(t.Context(), "orders", []byte(value), Header(name, value), Kind(kind), ID(id))
			if err != nil {
				require.True(t, errors.Is(err, ErrInvalid), "%v", err)
				continue
			}
			if receipt.Duplicate {
				continue
			}
			accepted++
			message := next()
			got := []any{message.ID, message.Kind, string(message.Payload), message.Headers[name]}
			if kind == "" {
				got[1] = "" // asynq has a type for each task
			}
			if diff := cmp.Diff([]any{id, kind, value, []string{value}}, got); diff != "" {
				t.Fatalf("%q: %q (-want, +got):\n%s", name, value, diff)
			}
		}
		require.True(t, accepted >= 50, "only %d texts were accepted", accepted)
	})
}

// randomText is often valid, and often nearly.
func randomText(random *rand.Rand) string {
	if random.IntN(4) == 0 {
		return []string{"a", "A", "x-1", "Tenant", "a.b*>", "é", " a", "a ", "a\r\nb: c", "a\x00", "\xff", "a\u2028b", "a\tb", "{}", ":", ""}[random.IntN(16)]
	}
	text := []byte{}
	for range 1 + random.IntN(6) {
		text = utf8.AppendRune(text, '!'+rune(random.IntN('~'-'!')))
	}
	return string(text)
}
