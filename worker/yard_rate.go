package worker

import (
	"time"
)

// want waits until messages of the queue wait for grants, and tells for how many. It is
// false when none will any more.
func (y *yard) want(q *queue) (int, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for {
		switch {
		case y.ended || q.gone:
			return 0, false
		case !q.limited() || q.waiting == 0:
			// A grant that nobody had a use for is over.
			q.granted = 0
		case q.waiting > q.granted+q.promised:
			return q.waiting - q.granted - q.promised, true
		}
		y.metered.Wait()
	}
}

// promise is told of jobs that may begin soon.
func (y *yard) promise(q *queue, number int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	q.promised += number
}

// grant lets that many jobs of the queue begin, which were promised.
func (y *yard) grant(q *queue, number int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	q.promised -= number
	q.granted += number
	y.work.Broadcast()
}

const (
	// shortWait for a grant means that the limit leaves room for more, longWait that more
	// is held than it lets begin.
	shortWait = 50 * time.Millisecond
	longWait  = 250 * time.Millisecond
)

// waited is told how long the queue's messages had to wait for a grant. By that, more or
// fewer are held for the next.
func (y *yard) waited(q *queue, wait time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case wait < shortWait:
		q.hand = min(q.hand*2, y.most)
	case wait > longWait:
		q.hand = max(1, q.hand/2)
	}
	y.room.Broadcast()
}
