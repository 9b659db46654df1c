package main

// messageQueue is the waiting messages by their number, in the order in which they came.
type messageQueue struct {
	numbers []int
	taken   int
}

func (q *messageQueue) queuedCount() int { return len(q.numbers) - q.taken }

func (q *messageQueue) pushMessage(i int) { q.numbers = append(q.numbers, i) }

func (q *messageQueue) firstMessage() int { return q.numbers[q.taken] }

func (q *messageQueue) popMessage() int {
	i := q.numbers[q.taken]
	q.taken++
	if q.taken == len(q.numbers) {
		q.numbers, q.taken = q.numbers[:0], 0
	}
	return i
}
