package main

// fifo is the waiting messages by their number, in the order in which they came.
type fifo struct {
	numbers []int
	taken   int
}

func (q *fifo) len() int { return len(q.numbers) - q.taken }

func (q *fifo) push(i int) { q.numbers = append(q.numbers, i) }

func (q *fifo) first() int { return q.numbers[q.taken] }

func (q *fifo) pop() int {
	i := q.numbers[q.taken]
	q.taken++
	if q.taken == len(q.numbers) {
		q.numbers, q.taken = q.numbers[:0], 0
	}
	return i
}
