// Package adminkeys reads the key with which the operator signs requests to workers, and the tokens with which sessions use the
// egress proxy.
package adminkeys

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

const (
	keyName = "private.pem"
	// maxAge is the time after which the Secret is read again, so that a key can be replaced.
	maxAge = time.Minute
)

// Store remembers the operator's key. A nil Store has no key.
type Store struct {
	kube.Clients

	secret types.NamespacedName

	mu     sync.Mutex
	keys   *adminauth.Keys
	readAt time.Time
}

// New returns a Store for the key in a Secret. Without the name of a Secret the operator has no key.
func New(clients kube.Clients, secret types.NamespacedName) *Store {
	return &Store{Clients: clients, secret: secret}
}

// Get returns nil if the operator has no key.
func (s *Store) Get(ctx context.Context) (*adminauth.Keys, error) {
	if s == nil || s.secret.Name == "" {
		return nil, nil //nolint:nilnil // the operator has no key
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	if !s.readAt.IsZero() && now.Sub(s.readAt) < maxAge {
		return s.keys, nil
	}
	keys, err := s.load(ctx)
	switch class := decision.ClassOf(err); {
	case err == nil:
	case errors.Is(err, errInvalidKey), class == decision.NotFound, class == decision.PermissionMissing, class == decision.PolicyDenied:
		// Without a key, pools work as with an operator of an earlier version.
		ctrl.LoggerFrom(ctx).Error(err, "The operator has no key to sign requests to workers and the tokens of sessions, so new workers have no protection from requests of other Pods, "+
			"and no session can use an egress proxy. Install the Secret, and the Role and the admission policy that permit the operator to write it", "secret", s.secret.String())
	case s.keys == nil:
		return nil, err
	default:
		return s.keys, nil // the next reconciliation reads it again
	}
	s.keys, s.readAt = keys, now
	return keys, nil
}

// errInvalidKey is an error that only a user can correct.
var errInvalidKey = errors.New("remove it from the Secret to get a new key")

// load reads the key from the Secret, and adds a new key to an empty Secret.
func (s *Store) load(ctx context.Context) (*adminauth.Keys, error) {
	secret := &corev1.Secret{}
	if err := s.Live.Get(ctx, s.secret, secret); err != nil {
		return nil, fmt.Errorf("reading the operator's key: %w", err)
	}
	text := secret.Data[keyName]
	if len(text) == 0 {
		var err error
		if text, err = adminauth.NewPrivateKey(); err != nil {
			return nil, err
		}
		before := secret.DeepCopy()
		secret.Data = map[string][]byte{keyName: text}
		if err := s.Client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("writing the operator's key: %w", err)
		}
	}
	keys, err := adminauth.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("the key %s of Secret %s is invalid: %w; %w", keyName, s.secret, err, errInvalidKey)
	}
	return keys, nil
}
