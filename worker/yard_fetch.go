package worker

// request is what a lane may ask the broker for.
type request struct {
	number int
	// await: nothing is known to be there.
	await bool
}

// ask waits until the lane may ask for messages. It is false when it never may again.
func (y *yard) ask(l *lane) (request, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for {
		if y.ended || l.queue.gone {
			return request{}, false
		}
		if r := y.credit(l); r.number > 0 {
			y.fetching++
			if r.await {
				l.awaiting = true
			} else {
				y.expect(l, r.number)
			}
			return r, true
		}
		y.room.Wait()
	}
}

// credit is what the lane may ask for now.
func (y *yard) credit(l *lane) request {
	q := l.queue
	if y.draining.Load() || l.blocked() {
		return request{}
	}
	free := y.concurrency + y.ahead - y.busy - y.waiting - y.asked + l.overtaken() + y.stalled()
	free = min(free, y.most-y.busy-y.waiting-y.asked, q.breaker.Admits(y.now())-q.waiting-q.asked)
	if q.limited() {
		free = min(free, q.hand-q.waiting-q.asked)
	}
	if free <= 0 {
		return request{}
	}
	if !l.hungry() {
		return request{number: one(!l.awaiting && l.asked == 0), await: true}
	}
	// With room for few, it is for whoever is next in turn.
	if _, turn := y.pick(func(l *lane) bool { return l.hungry() && !l.blocked() && y.quota(l) > 0 }); turn != l {
		return request{}
	}
	number := min(free, y.quota(l), mostAhead)
	if len(l.held)+l.asked > 0 && number < (y.concurrency+y.ahead)/4 {
		// There is something to do until more can be had at once.
		return request{}
	}
	return request{number: number}
}

// expect changes how many messages the lane's requests may still bring.
func (y *yard) expect(l *lane, change int) {
	l.asked += change
	l.queue.asked += change
	y.asked += change
}

// stalled is how many held messages wait for their queue's rate limit: meanwhile there is
// room for other queues' in their place.
func (y *yard) stalled() int {
	n := 0
	for _, q := range y.queues {
		if q.limited() {
			n += max(0, q.waiting-q.granted)
		}
	}
	return n
}

// quota is how many more the lane may hold, by its weight among those that have something.
func (y *yard) quota(l *lane) int {
	sum := 0.0
	for _, q := range y.queues {
		for _, other := range q.lanes {
			if other == l || other.hungry() || len(other.held) > 0 {
				sum += other.weight
			}
		}
	}
	room := float64(y.concurrency + y.ahead)
	return max(1, int(room*l.weight/sum)) - len(l.held) - l.asked
}

// fetched is told that a request is over, and what it brought.
func (y *yard) fetched(l *lane, r request, got int, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.fetching--
	if r.await {
		l.awaiting = false
	} else {
		y.expect(l, -min(l.asked, max(0, r.number-got)))
	}
	l.failing = err != nil
	if got < r.number {
		l.behind = 0
	}
	y.wake()
}
