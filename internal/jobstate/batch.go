package jobstate

// FinalMember is the number of the job that runs at the end of a batch.
const FinalMember = -1

// MaxBatchJobs bounds a batch, because each change stores which of its jobs have ended.
const MaxBatchJobs = 10_000

// Batch is what is stored about a batch.
type Batch struct {
	Total int `json:"total"`
	// Ended has a bit for each job that has ended.
	Ended []byte `json:"ended"`
	// FinalSent: the broker stores the final job. FinalDone: it has ended.
	FinalSent bool `json:"finalSent,omitempty"`
	FinalDone bool `json:"finalDone,omitempty"`
}

// NewBatch returns a batch of which no job has ended.
func NewBatch(total int) *Batch { return &Batch{Total: total, Ended: make([]byte, (total+7)/8)} }

// End records that a job has ended. It reports whether that was new.
func (b *Batch) End(member int) bool {
	if member == FinalMember {
		changed := !b.FinalDone
		b.FinalSent, b.FinalDone = true, true
		return changed
	}
	if member < 0 || member >= b.Total || member/8 >= len(b.Ended) || b.HasEnded(member) {
		return false
	}
	b.Ended[member/8] |= 1 << (member % 8)
	return true
}

// HasEnded reports whether a job has ended.
func (b *Batch) HasEnded(member int) bool {
	if member == FinalMember {
		return b.FinalDone
	}
	return member >= 0 && member/8 < len(b.Ended) && b.Ended[member/8]&(1<<(member%8)) != 0
}

// Count returns the number of jobs that have ended.
func (b *Batch) Count() (ended int) {
	for member := range b.Total {
		if b.HasEnded(member) {
			ended++
		}
	}
	return ended
}

// NeedsFinal reports whether the final job has to be sent: all others have ended, and it is not known to be stored.
func (b *Batch) NeedsFinal() bool { return !b.FinalSent && b.Count() == b.Total }
