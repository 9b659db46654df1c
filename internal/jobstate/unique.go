package jobstate

// Lock is what is stored for a unique key. It is reserved while its producer sends the job, and confirmed afterwards.
type Lock struct {
	// ID of the job, and Holder, which differs for each job, also of the same ID.
	ID     string `json:"id"`
	Holder string `json:"holder"`
	// Confirmed: the broker stores the job.
	Confirmed bool `json:"confirmed,omitempty"`
}

// Claim is what a producer does about a key.
type Claim int

// The claims.
const (
	// ClaimReserve: the key is free. Reserve it, and send the job.
	ClaimReserve Claim = iota
	// ClaimResume: an earlier call reserved the key for the same job. Send the job as the same holder.
	ClaimResume
	// ClaimWait: another producer is sending a job with the key, and may fail.
	ClaimWait
	// ClaimDuplicate: another job has the key.
	ClaimDuplicate
)

// ClaimKey decides about the key of a job that is sent. A nil lock is free.
func ClaimKey(found *Lock, id string) Claim {
	switch {
	case found == nil:
		return ClaimReserve
	case found.ID == id:
		return ClaimResume
	case !found.Confirmed:
		return ClaimWait
	}
	return ClaimDuplicate
}

// MayStart decides about the key of a job that a worker is about to start. It takes a free key again, because its lock may
// have expired while the job waited, and one that another producer reserved only: that one may fail to send its job.
func MayStart(found *Lock, holder string) bool {
	return found == nil || found.Holder == holder || !found.Confirmed
}
