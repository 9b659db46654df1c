package natstest

import (
	"testing"

	"github.com/nats-io/nkeys"
)

// NewNKey returns the seed of a new user, and its public key.
func NewNKey(t testing.TB) (seed []byte, public string) {
	t.Helper()
	user := newKey(t, nkeys.CreateUser)
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if public, err = user.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return seed, public
}
