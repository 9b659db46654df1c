package natstest

import (
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/yardmaster/yardmaster/test/require"
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
	require.NoError(a.t, err)
	seed, err := key.Seed()
	require.NoError(a.t, err)
	credentials, err = jwt.FormatUserConfig(token, seed)
	require.NoError(a.t, err)
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
	require.NoError(a.t, err)
	require.NoError(a.t, a.resolver.Store(claims.Subject, token))
}

func (a *Account) publicKey(pair nkeys.KeyPair) string {
	a.t.Helper()
	public, err := pair.PublicKey()
	require.NoError(a.t, err)
	return public
}

func newKey(t testing.TB, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	require.NoError(t, err)
	return pair
}

// NewNKey returns the seed of a new user, and its public key.
func NewNKey(t testing.TB) (seed []byte, public string) {
	t.Helper()
	user := newKey(t, nkeys.CreateUser)
	seed, err := user.Seed()
	require.NoError(t, err)
	public, err = user.PublicKey()
	require.NoError(t, err)
	return seed, public
}
