// Command empty does nothing: what any Go program takes to start and end.
package main

func main() {}
