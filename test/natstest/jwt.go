package natstest

import (
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// Account is the account of a server whose users log in with credentials files.
type Account struct {
	*Server
	t        testing.TB
	operator nkeys.KeyPair
	key      nkeys.KeyPair
	claims   *jwt.AccountClaims
	resolver *server.MemAccResolver
}

// StartWithAccount runs a server with an operator and an account, until the test ends.
func StartWithAccount(t testing.TB) *Account {
	t.Helper()
	a := &Account{t: t, operator: newKey(t, nkeys.CreateOperator), key: newKey(t, nkeys.CreateAccount), resolver: &server.MemAccResolver{}}
	a.claims = jwt.NewAccountClaims(a.publicKey(a.key))
	a.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	a.store(a.claims)
	system := jwt.NewAccountClaims(a.publicKey(newKey(t, nkeys.CreateAccount))) // JetStream needs one
	a.store(system)
	a.Server = Start(t, func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{jwt.NewOperatorClaims(a.publicKey(a.operator))}
		o.AccountResolver, o.SystemAccount = a.resolver, system.Subject
	})
	return a
}

// NewUser returns a credentials file, and a function that makes it invalid and restarts the server.
func (a *Account) NewUser() (credentials []byte, revoke func()) {
	a.t.Helper()
	key := newKey(a.t, nkeys.CreateUser)
	token, err := jwt.NewUserClaims(a.publicKey(key)).Encode(a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		a.t.Fatal(err)
	}
	if credentials, err = jwt.FormatUserConfig(token, seed); err != nil {
		a.t.Fatal(err)
	}
	return credentials, func() {
		a.claims.Revoke(a.publicKey(key))
		a.store(a.claims)
		a.Restart()
	}
}

// store publishes an account to the server.
func (a *Account) store(claims *jwt.AccountClaims) {
	a.t.Helper()
	token, err := claims.Encode(a.operator)
	if err == nil {
		err = a.resolver.Store(claims.Subject, token)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *Account) publicKey(pair nkeys.KeyPair) string {
	a.t.Helper()
	public, err := pair.PublicKey()
	if err != nil {
		a.t.Fatal(err)
	}
	return public
}

func newKey(t testing.TB, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
