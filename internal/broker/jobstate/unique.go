package jobstate

import (
	"encoding/json"
	"slices"
)

// Lock is the stored state of a unique key. It is reserved while a producer sends the job, confirmed once the broker stores the job, and
// ended for a while after the job has ended.
type Lock struct {
	// ID of the job, and Holder, which differs for each message with the same ID.
	ID     string `json:"id"`
	Holder string `json:"holder"`
	// Confirmed: the broker stores the job.
	Confirmed bool `json:"confirmed,omitempty"`
	// Ended: the job has ended, and the key is free. The lock remains because the broker can have the message for another moment, and
	// recognizes the ID for longer.
	Ended bool `json:"ended,omitempty"`
	// EndedHolders are the last messages with the key whose jobs have ended, at most maxEndedHolders.
	EndedHolders []string `json:"endedHolders,omitempty"`
}

// maxEndedHolders is more than the number of jobs with a key that end while an acknowledgement is on its way.
const maxEndedHolders = 8

// DecodeLock returns nil for an invalid lock: anyone with the permission may have written it.
func DecodeLock(raw []byte) *Lock {
	lock := &Lock{}
	if json.Unmarshal(raw, lock) != nil || lock.ID == "" || lock.Holder == "" || len(lock.EndedHolders) > maxEndedHolders {
		return nil
	}
	return lock
}

// IsFree reports whether no job has the key. A nil lock is free.
func (l *Lock) IsFree() bool { return l == nil || l.Ended }

// Claim is the decision of a producer about a key.
type Claim int

// The claims.
const (
	// ClaimReserve: the key is free, or an earlier call for the same job reserved it.
	ClaimReserve Claim = iota
	// ClaimStored: the same job has the key, and the broker stores it.
	ClaimStored
	// ClaimWait: another producer is sending a job with the key, and may fail.
	ClaimWait
	// ClaimDuplicate: another job has the key.
	ClaimDuplicate
)

// ClaimKey decides about the key of a job before it is sent.
func ClaimKey(found *Lock, id string) Claim {
	switch {
	case found.IsFree(), found.ID == id && !found.Confirmed:
		return ClaimReserve
	case found.ID == id:
		return ClaimStored
	case !found.Confirmed:
		return ClaimWait
	}
	return ClaimDuplicate
}

// Reserve returns the reservation that replaces the found lock. Its holder is new: if an earlier call has sent the job, the broker
// reports a duplicate.
func Reserve(found *Lock, id, holder string) *Lock {
	return &Lock{ID: id, Holder: holder, EndedHolders: found.ended("")}
}

// Take returns the lock of a job that a worker starts, which replaces the found lock.
func Take(found *Lock, id, holder string) *Lock {
	return &Lock{ID: id, Holder: holder, Confirmed: true, EndedHolders: found.ended(holder)}
}

// Release returns the replacement of a lock whose job has ended, or was not sent.
func (l *Lock) Release() *Lock {
	return &Lock{ID: l.ID, Holder: l.Holder, Ended: true, EndedHolders: l.EndedHolders}
}

// ended returns the messages whose jobs have ended, without a message that starts again because its acknowledgement was lost.
func (l *Lock) ended(restarted string) []string {
	if l == nil {
		return nil
	}
	all := slices.Clone(l.EndedHolders)
	if l.Ended {
		all = append(all, l.Holder)
	}
	all = slices.DeleteFunc(all, func(holder string) bool { return holder == restarted })
	return all[max(0, len(all)-maxEndedHolders):]
}

// Adopt transfers the reservation to the stored message of which the sent message is a duplicate. Stored is the holder of the stored
// message; empty if the broker no longer stores it. Adopt returns false if its job has ended.
func (l *Lock) Adopt(stored string) bool {
	if stored == "" || slices.Contains(l.EndedHolders, stored) {
		return false
	}
	l.Holder = stored
	return true
}

// MayStart reports whether a worker may start a job. The job may take a free key again, because its lock may have expired while the job
// waited, and a key that another producer has only reserved, because this producer may fail to send its job.
func MayStart(found *Lock, holder string) bool {
	return found.IsFree() || found.Holder == holder || !found.Confirmed
}

// NeedsConfirm decides about a reservation that has changed since a producer made it. A worker may have confirmed it, or the job may have
// ended. Another call for the same job may have reserved the key again before it found the same message.
func NeedsConfirm(found *Lock, id string) bool {
	return !found.IsFree() && found.ID == id && !found.Confirmed
}
