package memory

import (
	"bytes"
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// storedKey is a value of the key store.
type storedKey struct {
	value    []byte
	revision uint64
	expiry   time.Time
}

// StoredHolder implements broker.KeyStore.
func (b *Broker) StoredHolder(ctx context.Context, job *broker.OutgoingJob, duplicate broker.SendResult) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := b.openKeys(ctx, job.Queue)
	if err != nil {
		return "", err
	}
	if running := q.running[duplicate.ID]; running != nil {
		return job.HolderOf(running.Headers), nil
	}
	for _, stored := range q.jobs {
		if stored.ID == duplicate.ID {
			return job.HolderOf(stored.Headers), nil
		}
	}
	return "", nil
}

// ReadKey implements broker.KeyStore.
func (b *Broker) ReadKey(ctx context.Context, name string, key broker.Key) ([]byte, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := b.openKeys(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	stored := q.keys[key]
	return bytes.Clone(stored.value), stored.revision, nil
}

// WriteKey implements broker.KeyStore.
func (b *Broker) WriteKey(
	ctx context.Context, name string, key broker.Key, value []byte, expiry time.Duration, revision uint64,
) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := b.openKeys(ctx, name)
	switch {
	case err != nil:
		return 0, err
	case q.keys[key].revision != revision:
		return 0, broker.ErrKeyChanged
	}
	q.lastRevision++
	q.keys[key] = storedKey{bytes.Clone(value), q.lastRevision, b.now().Add(expiry)}
	return q.lastRevision, nil
}

// DeleteKey implements broker.KeyStore.
func (b *Broker) DeleteKey(ctx context.Context, name string, key broker.Key, revision uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := b.openKeys(ctx, name)
	switch {
	case err != nil:
		return err
	case q.keys[key].revision != revision:
		return broker.ErrKeyChanged
	}
	delete(q.keys, key)
	return nil
}

// openKeys returns a queue without the keys that have expired. The caller holds the lock.
func (b *Broker) openKeys(ctx context.Context, name string) (*queue, error) {
	if err := b.checkAvailable(ctx); err != nil {
		return nil, err
	}
	q := b.queues[name]
	if q == nil {
		return nil, unknownQueue(name)
	}
	for key, stored := range q.keys {
		if !b.now().Before(stored.expiry) {
			delete(q.keys, key)
		}
	}
	return q, nil
}
