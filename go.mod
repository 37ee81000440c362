module github.com/oncectl/oncectl

go 1.26.0
